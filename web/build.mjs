// Builds the page: node build.mjs OUTDIR [--no-sanitizer]
//
// The files are the same, byte for byte, for the same sources and the same
// package-lock.json. --no-sanitizer is for a test only: the HTML of answers
// then reaches the page as it is, and the Content-Security-Policy alone
// defends it.

import {build} from 'esbuild';
import {createHash} from 'node:crypto';
import {mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const [out, ...flags] = process.argv.slice(2);
if (!out || flags.some((flag) => flag !== '--no-sanitizer')) {
  console.error('usage: node build.mjs OUTDIR [--no-sanitizer]');
  process.exit(2);
}

const hashOf = (bytes) => createHash('sha256').update(bytes).digest('hex').slice(0, 16);

// KaTeX names each font in three formats. Browsers that run the page read the
// first, woff2.
const oneFormat = {
  name: 'one-format',
  setup: (plugin) =>
    plugin.onLoad({filter: /katex\.css$/}, ({path}) => ({
      contents: readFileSync(path, 'utf8').replace(/,\s*url\([^)]*\.(woff|ttf)\) format\("\w+"\)/g, ''),
      loader: 'css',
    })),
};

const result = await build({
  absWorkingDir: root,
  entryPoints: {app: 'src/main.ts', style: 'src/app.css'},
  outdir: 'out', // only for names: nothing is written there
  write: false,
  bundle: true,
  minify: true,
  format: 'esm',
  splitting: true,
  metafile: true,
  chunkNames: '[name]',
  target: ['chrome123', 'firefox120', 'safari17.5'],
  charset: 'utf8',
  legalComments: 'none',
  assetNames: '[name]',
  loader: {'.woff2': 'file'},
  define: {SANITIZE: String(!flags.includes('--no-sanitizer'))},
  plugins: [oneFormat],
});

rmSync(out, {recursive: true, force: true});
mkdirSync(out, {recursive: true});
const files = new Map(result.outputFiles.map((file) => [file.path.split('/').pop(), file.contents]));
const textOf = (name) => Buffer.from(files.get(name)).toString('utf8');

// A font is asked for with the hash of its content, as the other files are.
const css = textOf('style.css').replace(/url\("?\.?\/?([\w-]+\.woff2)"?\)/g, (_, name) => {
  writeFileSync(join(out, name), files.get(name));
  return `url(${name}?v=${hashOf(files.get(name))})`;
});
writeFileSync(join(out, 'app.css'), css);

// So is a script that another one imports.
const scripts = new Map();
function scriptOf(name) {
  if (!scripts.has(name)) {
    let text = textOf(name);
    for (const {path} of result.metafile.outputs[`out/${name}`].imports) {
      const other = path.split('/').pop();
      text = text.replaceAll(`"./${other}"`, `"./${other}?v=${hashOf(scriptOf(other))}"`);
    }
    writeFileSync(join(out, name), text);
    scripts.set(name, text);
  }
  return scripts.get(name);
}
const js = scriptOf('app.js');
writeFileSync(
  join(out, 'index.html'),
  readFileSync(join(root, 'index.html'), 'utf8')
    .replace('app.css', `app.css?v=${hashOf(css)}`)
    .replace('app.js', `app.js?v=${hashOf(js)}`),
);

// The licenses of the packages in the bundle.
const licenses = ['dompurify', 'highlight.js', 'katex', 'marked', 'marked-cjk-friendly'].map((name) => {
  const folder = join(root, 'node_modules', name);
  const {version, license} = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
});
writeFileSync(join(out, 'licenses.txt'), licenses.join(`\n${'='.repeat(72)}\n\n`));
