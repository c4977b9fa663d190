// How much of the page the tests in a browser ran. `node coverage.mjs DIRECTORY [LEAST]` reads what tests/e2e/ui/covering.py
// wrote, prints each file with its share, and ends with 1 where fewer lines than LEAST percent were run.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { CoverageReport } from "monocart-coverage-reports";

const here = import.meta.dirname;
const [counts, least = "80"] = process.argv.slice(2);
const assets = join(here, "../src/mpijob/api/page/assets");
const maps = join(here, "../.make/page-maps");
const files = readdirSync(counts).filter((name) => name.endsWith(".json"));
if (!files.length) {
  console.error(`${counts} holds no counts: the tests in a browser write them with MPIJOB_PAGE_COVERAGE set to it`);
  process.exit(2);
}

if (!existsSync(maps)) {
  console.error(`${maps} is not there: remove src/mpijob/api/page and let make build it anew`);
  process.exit(2);
}

const report = new CoverageReport({
  name: "the page",
  outputDir: join(counts, "report"),
  reports: [["json-summary"]],
  logging: "error",
  cleanCache: true,
  sourceFilter: (path) => /(^|\/)src\/.*\.tsx?$/.test(path) && !path.includes("node_modules"),
});

const script = (name, functions) => ({
  url: `file:///${name}`,
  source: readFileSync(join(assets, name), "utf8"),
  sourceMap: JSON.parse(readFileSync(join(maps, `${name}.map`), "utf8")),
  functions,
});

// What no test has loaded counts too, as not run.
const never = (name) => {
  const whole = { startOffset: 0, endOffset: readFileSync(join(assets, name), "utf8").length, count: 0 };
  return script(name, [{ functionName: "", isBlockCoverage: true, ranges: [whole] }]);
};
await report.add(readdirSync(assets).filter((name) => name.endsWith(".js")).map(never));

// One test may visit many pages: each visit is a script of its own with the same address.
for (const file of files) {
  const visits = JSON.parse(readFileSync(join(counts, file), "utf8"));
  await report.add(visits.map((one) => script(basename(new URL(one.url).pathname), one.functions)));
}

const { summary, files: found } = await report.generate();
const share = (part) => `${String(part.pct).padStart(6)} %`;
for (const one of found.toSorted((a, b) => a.summary.lines.pct - b.summary.lines.pct)) {
  if (one.summary.lines.pct < 90) console.log(`${share(one.summary.lines)} lines ${share(one.summary.branches)} branches  ${one.sourcePath}`);
}
console.log(`${share(summary.lines)} lines ${share(summary.branches)} branches  all ${found.length} files`);
if (summary.lines.pct < Number(least)) {
  console.error(`fewer than ${least} % of the page's lines were run by its tests`);
  process.exit(1);
}
