import { defineConfig } from "vitest/config";

// Another zone than UTC, and than the machine's: a time that is shown in the wrong zone must fail a test.
export default defineConfig({ test: { include: ["src/**/*.test.ts"], environment: "node", env: { TZ: "America/New_York" } } });
