import { expect, it } from "vitest";
import { position, progressPercent, timeLeft } from "./progress";

it("says how far a training is", () => {
  expect(position({ epoch: 3, epochs: 10, step: 820 })).toBe("epoch 3 of 10, step 820");
  expect(position({ step: 5, steps: null })).toBe("step 5");
  expect(position({})).toBe("");
  expect(progressPercent({ progress: 0.414 })).toBe(41);
  expect(progressPercent({ progress: null })).toBeNull();
});

it("says what is left only of a job that runs", () => {
  expect(timeLeft({ eta: 3600 }, true)).toBe("about 60 min left");
  expect(timeLeft({ eta: 3600 }, false)).toBe("");
  expect(timeLeft({ eta: null }, true)).toBe("");
});
