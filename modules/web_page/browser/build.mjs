/**
 * Build the files that the browser loads into ../static.
 *
 *     node build.mjs           write the files
 *     node build.mjs --check   compare the files with the sources; status 1 if they differ
 *
 * The same sources give the same bytes: names contain hashes of the contents, and the
 * compressed files contain no time.
 */

import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = join(HERE, "..", "static");

/** Import `icon:NAME` as the shapes of an icon of lucide, without any parser in the browser. */
const icons = {
  name: "icons",
  setup(builder) {
    builder.onResolve({ filter: /^icon:/ }, ({ path }) => ({ path: path.slice(5), namespace: "icon" }));
    builder.onLoad({ filter: /.*/, namespace: "icon" }, async ({ path }) => {
      const text = await readFile(join(HERE, "node_modules/lucide-static/icons", `${path}.svg`), "utf8");
      const inner = text.slice(text.indexOf(">", text.indexOf("<svg")) + 1);
      const shapes = [...inner.matchAll(/<([a-z]+)\s([^>]*?)\/>/g)].map(([, tag, attributes]) => [
        tag,
        Object.fromEntries([...attributes.matchAll(/([\w-]+)="([^"]*)"/g)].map(([, name, value]) => [name, value])),
      ]);
      return { contents: JSON.stringify(shapes), loader: "json" };
    });
  },
};

/** Remove the indentation of templates, which the minifier must keep. */
const templates = {
  name: "templates",
  setup(builder) {
    builder.onLoad({ filter: /\/src\/.*\.js$/ }, async ({ path }) => (
      { contents: (await readFile(path, "utf8")).replaceAll(/\n[ \t]+/g, "\n"), loader: "js" }));
  },
};

const bundled = await build({
  entryPoints: { app: join(HERE, "src/app.js"), style: join(HERE, "src/style/style.css") },
  absWorkingDir: HERE,
  outdir: OUT,
  entryNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome111", "firefox121", "safari17.5"],
  legalComments: "none",
  charset: "utf8",
  metafile: true,
  write: false,
  plugins: [icons, templates],
});

/** @type {Map<string, Buffer>} */
const files = new Map();
for (const file of bundled.outputFiles) {
  files.set(file.path.split("/").at(-1), Buffer.from(file.contents));
}
const named = (start, end) => [...files.keys()].find((one) => one.startsWith(start) && one.endsWith(end));
const script = named("app-", ".js");
const style = named("style-", ".css");

const packages = await packagesOf(Object.keys(bundled.metafile.inputs));
const drawing = await readFile(join(HERE, "src/icon.svg"));
const icon = `icon-${createHash("sha256").update(drawing).digest("hex").slice(0, 8)}.svg`;
files.set(icon, drawing);
files.set("LICENSES.txt", Buffer.from(await licences(packages)));

for (const [name, content] of [...files]) {
  files.set(`${name}.br`, brotliCompressSync(content, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length },
  }));
  const zipped = gzipSync(content, { level: 9 });
  // The byte names the operating system; 255 is "unknown".
  zipped[9] = 255;
  files.set(`${name}.gz`, zipped);
}

const manifest = {
  script,
  style,
  icon,
  files: Object.fromEntries([...files].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, content]) => [
    name,
    { sha256: createHash("sha256").update(content).digest("hex"), bytes: content.length },
  ])),
  packages,
};
files.set("manifest.json", Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`));

if (process.argv.includes("--check")) {
  await check();
} else {
  await rm(OUT, { recursive: true, force: true });
  await mkdir(OUT, { recursive: true });
  for (const [name, content] of files) await writeFile(join(OUT, name), content);
}
const size = (name) => `${(files.get(`${name}.br`).length / 1024).toFixed(1)} KiB`;
console.log(`${script} ${size(script)}, ${style} ${size(style)} (brotli)`);

/** Compare the files in OUT with those that the sources give. */
async function check() {
  const there = new Set(await readdir(OUT));
  const different = [];
  for (const [name, content] of files) {
    if (!there.delete(name) || !content.equals(await readFile(join(OUT, name)))) different.push(name);
  }
  different.push(...there);
  if (different.length) {
    console.error(`static/ differs from the sources (${different.join(", ")}): run 'make page', and commit the result`);
    process.exit(1);
  }
}

/** Return the packages whose files are in the bundle, sorted by name. */
async function packagesOf(inputs) {
  const names = new Set();
  for (const input of inputs) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) names.add(found[1]);
    if (input.startsWith("icon:")) names.add("lucide-static");
  }
  const found = [];
  for (const name of [...names].sort()) {
    const about = JSON.parse(await readFile(join(HERE, "node_modules", name, "package.json"), "utf8"));
    found.push({ name, version: about.version, license: about.license });
  }
  return found;
}

/** Return the text of the licences of packages. */
async function licences(found) {
  const parts = [];
  for (const one of found) {
    const folder = join(HERE, "node_modules", one.name);
    const file = (await readdir(folder)).sort().find((name) => /^(licen[cs]e|mit)/i.test(name));
    // A package without the text of its licence has it in its repository only.
    const text = await readFile(file ? join(folder, file) : join(HERE, "licenses", `${one.name}.txt`), "utf8");
    parts.push(`${one.name} ${one.version}\n\n${text.trim()}\n`);
  }
  return parts.join(`\n${"-".repeat(72)}\n\n`);
}
