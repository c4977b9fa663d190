import { expect, it } from "vitest";
import { asCommand, asPython } from "./snippets";

it("writes a job as a command line", () => {
  const job = { name: "hello", workers: 2, resources: { memory: "128Mi" }, command: ["sh", "-c", "echo hi"], env: { LR: "0.1" } };
  expect(asCommand(job, "")).toBe("mpijob create hello --workers 2 --memory 128Mi --env LR=0.1 -- sh -c 'echo hi'");
  expect(asCommand({ ...job, retry: { limit: 2 } }, "name: hello\n")).toBe("mpijob create -f - <<'END'\nname: hello\nEND");
});

it("writes a job as Python", () => {
  const text = asPython({ name: "a", resources: { cpu: "2" }, volumes: [{ mount: "/data", kind: "claim" }], requeue_on_lost_worker: true });
  expect(text).toContain("from mpijob.model import Resources, Volume");
  expect(text).toContain('resources=Resources(cpu="2")');
  expect(text).toContain('volumes=[Volume(mount="/data", kind="claim")]');
  expect(text).toContain("requeue_on_lost_worker=True");
});
