/* Measures of the images: histograms with thresholds, and pictures on both sides of them. */

function measured(quality) {
  return h('section', { id: 'quality', 'aria-labelledby': 'quality-title' },
    h('h2', { id: 'quality-title' }, 'Quality'),
    h('p', { class: 'lead' }, 'Measures of the images, those included that a threshold of [quality] dropped. '
      + 'A solid line is a threshold, the dashed one the median.'),
    h('div', { class: 'measures' }, quality.map((spec) => h('article', { class: 'measure' },
      measuredChart(spec), h('div', {}, spec.sides.map((side) => row(side)))))));
}

function measuredChart(spec) {
  const show = (value) => String(Number((spec.log ? 10 ** value : value).toPrecision(3)));
  const slot = WIDTH / Math.max(spec.counts.length, 9);
  const wide = slot * spec.counts.length;
  const ends = [spec.start, spec.start + spec.counts.length * spec.step];
  const x = (value) => ((value - spec.start) / spec.step) * slot;
  const most = Math.max(...spec.counts);
  const bars = spec.counts.map((number, bin) => {
    const tall = number ? Math.max(2, (number / most) * (FLOOR - 14)) : 0;
    const from = spec.start + bin * spec.step;
    return svg('g', {},
      svg('title', {}, `${show(from)} – ${show(from + spec.step)}: ${counted(number, spec.thing)}`),
      svg('rect', { class: 'hit', x: bin * slot, y: 0, width: slot, height: FLOOR }),
      svg('rect', { class: 'bin', x: bin * slot + 1, y: FLOOR - tall, width: Math.max(1, slot - 2), height: tall, rx: 2 }));
  });
  const middle = Math.min(wide, x(spec.median));
  const lines = spec.lines.filter((value) => x(value) >= 0 && x(value) <= wide).map((value) => svg('line', { class: 'limit', x1: x(value), x2: x(value), y1: 0, y2: FLOOR },
    svg('title', {}, `threshold ${show(value)}`)));
  const named = spec.lines.length ? `threshold ${spec.lines.map(show).join(' and ')}` : 'no threshold';
  const words = `median ${show(spec.median)}, mostly ${show(spec.low)} to ${show(spec.high)}; ${named}`;
  return h('div', { class: 'chart' }, h('h3', {}, spec.title), h('p', { class: 'say' }, `${spec.note[0].toUpperCase()}${spec.note.slice(1)}; ${words}.`),
    svg('svg', { viewBox: `${(wide - WIDTH) / 2} -4 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': `${spec.title}: ${words}` },
      bars, svg('line', { class: 'axis', x1: 0, x2: wide, y1: FLOOR + 0.5, y2: FLOOR + 0.5 }),
      svg('line', { class: 'middle', x1: middle, x2: middle, y1: 0, y2: FLOOR }), lines,
      wide < NARROW
        ? svg('text', { x: wide / 2, y: FLOOR + 16, 'text-anchor': 'middle' }, ends.map(show).join(' – '))
        : [svg('text', { x: 0, y: FLOOR + 16 }, show(ends[0])), svg('text', { x: wide, y: FLOOR + 16, 'text-anchor': 'end' }, show(ends[1]))]));
}

function row(side) {
  return h('div', { class: 'near' }, h('h4', {}, side.title),
    side.images.length ? h('ul', {}, side.images.map((each) => h('li', { title: each.path },
      each.image ? h('img', { src: each.image, alt: each.path, loading: 'lazy', decoding: 'async' }) : h('span', { class: 'gone' }, each.path),
      h('span', {}, String(Number(each.value.toPrecision(4))), each.message ? h('b', {}, ' dropped') : ''))))
      : h('p', {}, 'none'));
}

function showMeasured(quality) {
  document.getElementById('samples').before(measured(quality));
  document.querySelector('#nav a[href="#samples"]').before(h('a', { href: '#quality' }, 'Quality'));
}

if (data.quality) showMeasured(data.quality);
document.addEventListener('glit-numbers', (event) => { if (event.detail.quality) showMeasured(event.detail.quality); });
