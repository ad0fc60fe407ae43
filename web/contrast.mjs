// Checks the palettes of src/variables.css: node contrast.mjs
//
// Text has a contrast of at least 4.5 to each surface that it stands on, and
// what is no text at least 3 (WCAG 2.2, 1.4.3 and 1.4.11).

import {readFileSync} from 'node:fs';

const css = readFileSync(new URL('src/variables.css', import.meta.url), 'utf8');
const colours = new Map(
  [...css.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g)].map(([, name, ...values]) => [name, values]),
);

const surfaces = ['page', 'sunk', 'raised', 'hover'];
const rules = [
  [4.5, ['ink', 'soft', 'accent'], [...surfaces, 'accent-sunk']],
  [4.5, ['danger'], ['page', 'raised', 'danger-sunk']],
  [4.5, ['ink', 'soft'], ['danger-sunk', 'warn-sunk']],
  [4.5, ['warn'], ['warn-sunk']],
  [4.5, ['on-accent'], ['accent']],
  [4.5, [...colours.keys()].filter((name) => name.startsWith('code-')), ['sunk']],
  [4.5, ['ink'], [...colours.keys()].filter((name) => name.startsWith('likely-'))],
  [3, ['edge', 'focus'], ['page', 'sunk', 'raised']],
];

/** The relative luminance of WCAG. */
function luminance(colour) {
  const linear = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

for (const [least, fronts, backs] of rules)
  for (const front of fronts)
    for (const back of backs)
      ['light', 'dark'].forEach((theme, i) => {
        const value = contrast(colours.get(front)[i], colours.get(back)[i]);
        if (value >= least) return;
        console.error(`variables.css: ${front} on ${back} (${theme}) has a contrast of ${value.toFixed(2)}, not ${least}`);
        process.exitCode = 1;
      });
