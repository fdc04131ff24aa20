/* Elements and numbers. Text only ever goes in by textContent. */

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes, and children that are elements or text. */
function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const GROUPED = new Intl.NumberFormat('en');

function count(number) {
  return GROUPED.format(number);
}

/** `1 image`, `2 images`. */
function counted(number, thing) {
  return `${count(number)} ${number === 1 ? thing.replace(/s$/, '') : thing}`;
}

function cosine(value) {
  return value === null || value === undefined ? '–' : value.toFixed(3).replace(/^-(0\.000)$/, '$1');
}

/** For every dataset of the page: whether its pairs were read from files, without cosines. */
function pairsFromFiles() {
  const stories = data.sides ? data.sides.map((side) => side.story) : [data.story || data.found];
  return stories.map((story) => story.pairs_from_files);
}

/** What the number of a pair is called. */
function measure() {
  return pairsFromFiles().some(Boolean) ? 'similarity' : 'cosine';
}

function percent(value) {
  if (value === null || value === undefined) return '–';
  if (value > 0 && value < 0.01) return '<1 %';
  return `${Math.round(value * 100)} %`;
}

/** A calibrated probability, which is never quite certain. */
function odds(value) {
  if (value !== null && value >= 0.995) return '>99 %';
  return percent(value);
}

function bytes(number) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) { number /= 1000; unit += 1; }
  return `${number < 10 && unit ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

function text(words) {
  return document.createTextNode(words);
}
