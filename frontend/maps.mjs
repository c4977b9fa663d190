// Takes the source maps out of the built page, which goes into the package, and keeps them for coverage.mjs.
import { copyFileSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";

const assets = join(import.meta.dirname, "../src/mpijob/api/page/assets");
const maps = join(import.meta.dirname, "../.make/page-maps");
rmSync(maps, { recursive: true, force: true });
mkdirSync(maps, { recursive: true });
for (const name of readdirSync(assets).filter((name) => name.endsWith(".map"))) {
  copyFileSync(join(assets, name), join(maps, name));
  rmSync(join(assets, name));
}
