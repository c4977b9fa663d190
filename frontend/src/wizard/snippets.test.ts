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

it("writes worker groups with the resources of each", () => {
  const job = { name: "a", workers: 3, command: ["b"], groups: [{ name: "cpu", workers: 1, resources: { cpu: "4" } }] };
  const text = asPython(job);
  expect(text).toContain("from mpijob.model import Resources, WorkerGroup");
  expect(text).toContain('groups=[WorkerGroup(name="cpu", workers=1, resources=Resources(cpu="4"))]');
  expect(asCommand(job, "name: a\n")).toContain("mpijob create -f -");
});
