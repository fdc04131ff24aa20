/* Figures beside those of papers, histograms, and the share of every source of regions. */

const WIDTH = 320;
const HEIGHT = 132;
const FLOOR = 108;
const NARROW = 110;

function distributions(data) {
  const charts = data.charts.map(chart);
  if (data.sources.length) charts.push(shares(data.sources));
  return h('section', { id: 'numbers', 'aria-labelledby': 'numbers-title' },
    h('h2', { id: 'numbers-title' }, 'Statistics'),
    h('p', { class: 'lead' }, 'Over the whole dataset, beside what papers print of theirs.'), summaries(data.figures),
    h('p', { class: 'lead' }, `The dashed line is the median; `
      + 'nine tenths of the values lie in the range that is named.'),
    h('div', { class: 'charts' }, charts));
}

/** Two tables: the dataset's figures, and its means above those of papers. */
function summaries({ lines, columns, papers, note }) {
  const row = ([name, ...values]) => h('tr', {}, h('th', { scope: 'row' }, name), values.map((value) => h('td', {}, value)));
  const table = (name, head, rows) => h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': name },
    h('table', { class: 'table' }, head, h('tbody', {}, rows.map(row))));
  const titles = h('thead', {}, h('tr', {}, columns.map((title) => h('th', { scope: 'col' }, title))));
  return h('div', { class: 'summaries' }, table('Figures of the dataset', null, lines),
    h('div', {}, table('Means beside those of papers', titles, papers), h('p', { class: 'say' }, note)));
}

function chart(spec) {
  const show = (value) => (spec.percent ? percent(value) : String(Number(value.toFixed(3))));
  const range = spec.low === spec.high ? show(spec.low) : `${show(spec.low)} to ${show(spec.high)}`;
  const words = spec.constant ? `always ${range}` : `median ${show(spec.median)}, mostly ${range}`;
  const most = Math.max(...spec.counts);
  const slot = WIDTH / Math.max(spec.counts.length, 9);
  const wide = slot * spec.counts.length;
  const gap = Math.min(2, slot * 0.18);
  const x = (value) => ((value - spec.start) / spec.step) * slot;
  const bars = spec.counts.map((number, bin) => {
    const tall = number ? Math.max(2, (number / most) * (FLOOR - 14)) : 0;
    const from = spec.start + bin * spec.step;
    const upTo = spec.step === 1 && !spec.percent ? show(from) : `${show(from)} – ${show(from + spec.step)}`;
    return svg('g', {},
      svg('title', {}, `${upTo}: ${counted(number, spec.thing)}`),
      svg('rect', { class: 'hit', x: bin * slot, y: 0, width: slot, height: FLOOR }),
      svg('rect', { class: 'bin', x: bin * slot + gap / 2, y: FLOOR - tall, width: slot - gap, height: tall, rx: Math.min(2, slot / 4) }));
  });
  const centre = spec.step === 1 && !spec.percent ? 0.5 : 0;
  const middle = Math.min(wide, x(spec.median + centre));
  const end = spec.start + (spec.counts.length - (centre ? 1 : 0)) * spec.step;
  const note = spec.name === 'similarity' && measure() !== 'cosine' ? '1 for a pair of the file, else 0; no cosine' : spec.note;
  return h('div', { class: 'chart' },
    h('h3', {}, spec.title),
    h('p', { class: 'say' }, `${words[0].toUpperCase()}${words.slice(1)}`, note ? `; ${note}.` : '.'),
    svg('svg', { viewBox: `${(wide - WIDTH) / 2} -4 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': `${spec.title}: ${words}` },
      bars,
      svg('line', { class: 'axis', x1: 0, x2: wide, y1: FLOOR + 0.5, y2: FLOOR + 0.5 }),
      svg('line', { class: 'middle', x1: middle, x2: middle, y1: 0, y2: FLOOR }),
      wide < NARROW // one label for both ends, which would overlap
        ? svg('text', { x: wide / 2, y: FLOOR + 16, 'text-anchor': 'middle' }, end === spec.start || spec.low === spec.high ? show(spec.start) : `${show(spec.start)} – ${show(end)}`)
        : [svg('text', { x: 0, y: FLOOR + 16 }, show(spec.start)), svg('text', { x: wide, y: FLOOR + 16, 'text-anchor': 'end' }, show(end))]));
}

function shares(sources) {
  const all = sources.reduce((sum, each) => sum + each.regions, 0);
  const paired = sources.reduce((sum, each) => sum + each.pairs, 0);
  const track = (share, kind) => {
    const bar = h('i');
    bar.style.width = `${share * 100}%`;
    return h('div', { class: `track ${kind}`, 'aria-hidden': 'true' }, bar);
  };
  return h('div', { class: 'chart' },
    h('h3', {}, 'Who proposed the regions'),
    h('p', { class: 'say' }, 'Share of all regions (grey), and of those that got a sentence.'),
    h('div', { class: 'shares' }, sources.map((each) => {
      const ofAll = each.regions / all;
      const ofPairs = paired ? each.pairs / paired : 0;
      return h('div', {},
        h('div', { class: 'name' }, each.source, h('span', {}, `${percent(ofAll)} · ${percent(ofPairs)}`)),
        track(ofAll, 'of-all'), track(ofPairs, 'of-pairs'));
    })));
}
