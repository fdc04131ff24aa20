/* The similarities of a sample: a row a sentence, a column a region, darker is more similar; over the
   columns the regions, cut out of the card's picture. */

const CELL = 13;
const HEAD = 28;
const MOST_CUT_OUT = 38; // more columns are too narrow for pictures over them

/** `choose(s, r)` is told where the mouse is: `s` is null over a region's picture, both elsewhere. */
function heatmap(sample, hues, picture, choose) {
  const rows = sample.matrix.length;
  const columns = sample.regions.length;
  if (!rows || !columns) return null;
  const wide = Math.max(columns * CELL, 120);
  const canvas = h('canvas', {
    role: 'img',
    'aria-label': `Similarity of ${counted(rows, 'sentences')} and ${counted(columns, 'regions')}; `
      + 'the ringed region of a row is its pair',
  });
  const head = picture && columns <= MOST_CUT_OUT ? HEAD : 0;
  const tall = head + rows * CELL;
  canvas.style.height = `${tall}px`;
  canvas.style.maxWidth = `${columns * CELL * 2.2}px`;
  const flat = sample.matrix.flat().filter((value) => value !== null);
  const low = Math.min(...flat);
  const high = Math.max(...flat);
  const chosen = new Map(sample.pairs.filter((pair) => !pair.none).map((pair) => [pair.s, pair.r]));
  const draw = (ink = null) => {
    const style = getComputedStyle(canvas);
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    const width = canvas.clientWidth || wide;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(tall * scale);
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    const cell = width / columns;
    if (head && picture.naturalWidth) cutOut(pen, picture, sample, cell);
    pen.translate(0, head);
    for (let s = 0; s < rows; s += 1) {
      for (let r = 0; r < columns; r += 1) {
        const value = sample.matrix[s][r];
        const heat = value === null || high === low ? 0 : (value - low) / (high - low);
        pen.globalAlpha = 0.05 + 0.9 * heat * heat;
        pen.fillStyle = ink || style.color || '#000';
        pen.fillRect(r * cell, s * CELL, Math.max(cell - 1, 0.6), CELL - 1);
      }
      if (chosen.has(s)) {
        pen.globalAlpha = 1;
        pen.lineWidth = 2;
        pen.strokeStyle = hues[s];
        pen.strokeRect(chosen.get(s) * cell + 1, s * CELL + 1, Math.max(cell - 3, 1), CELL - 3);
      }
    }
  };
  const at = (event) => {
    const place = canvas.getBoundingClientRect();
    const r = Math.floor(((event.clientX - place.left) / place.width) * columns);
    const s = Math.floor((((event.clientY - place.top) / place.height) * tall - head) / CELL);
    return s < rows && r >= 0 && r < columns ? [s < 0 ? null : s, r] : null;
  };
  canvas.addEventListener('mousemove', (event) => { const cell = at(event); if (cell) choose(...cell); });
  canvas.addEventListener('mouseleave', () => choose(null, null));
  picture?.addEventListener('load', () => draw());
  new ResizeObserver(() => draw()).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw());
  document.addEventListener('glit-theme', () => draw());
  window.addEventListener('beforeprint', () => draw('#000')); // paper is white, whatever the screen is
  window.addEventListener('afterprint', () => draw());
  draw(); // those that come up only to be printed are not resized before
  const step = rows > 14 ? 5 : 1;
  const numbers = Array.from({ length: rows }, (_, s) => h('span', {}, s === 0 || (s + 1) % step === 0 ? String(s + 1) : ' '));
  const left = h('div', { class: 'rows', 'aria-hidden': 'true' }, numbers);
  left.style.paddingTop = `${head}px`;
  return h('div', { class: 'heat' }, left, canvas,
    h('div', { class: 'below' }, `${counted(columns, 'regions')} →  ${measure()} ${cosine(low)} to ${cosine(high)}`));
}

/** Every region, as large as it fits over its column. */
function cutOut(pen, picture, sample, cell) {
  const shown = picture.naturalWidth / sample.w;
  sample.regions.forEach(({ box: [x0, y0, x1, y1] }, r) => {
    const size = Math.min((cell - 2) / (x1 - x0), (HEAD - 3) / (y1 - y0));
    const [wide, tall] = [(x1 - x0) * size, (y1 - y0) * size];
    pen.drawImage(picture, x0 * shown, y0 * shown, (x1 - x0) * shown, (y1 - y0) * shown,
      r * cell + (cell - 1 - wide) / 2, HEAD - 2 - tall, wide, tall);
  });
}
