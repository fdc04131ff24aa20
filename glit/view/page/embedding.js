/* What `glit view --serve` knows of the images by the dataset's matcher: a map, and the nearest. */

const MAP_SIDE = 520;
const REACH = 12; // pixels from the mouse to a point

/** Asks until the images are embedded; `tell` hears how far it is. */
async function embedded(path, tell) {
  for (;;) {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(await answer.text());
    const found = await answer.json();
    if (found.points || found.samples) return found;
    tell(found.total ? `Embedding images: ${count(found.done)} of ${count(found.total)} …` : 'Loading the matcher …');
    await new Promise((resolve) => { setTimeout(resolve, 500); });
  }
}

function mapSection(data) {
  const said = h('p', { class: 'lead', role: 'status' });
  const start = h('button', { class: 'more', type: 'button' }, 'Draw the map');
  const place = h('div', { class: 'points' });
  start.addEventListener('click', async () => {
    start.disabled = true;
    try {
      const { points, total } = await embedded('map', (words) => { said.textContent = words; });
      said.textContent = `${counted(points.length, 'images')}${total < data.selection.all ? `, of the first ${count(total)} samples` : ''}. Click one to open its sample, or go there by the arrow keys and Enter.`;
      start.remove();
      place.append(...pointsOf(points));
    } catch (error) {
      said.textContent = error.message;
    }
    start.disabled = false;
  });
  return h('section', { id: 'map', 'aria-labelledby': 'map-title' },
    h('h2', { id: 'map-title' }, 'Map'),
    h('p', { class: 'lead' }, 'Every image by its embedding: images that look alike to the matcher lie together. The axes are the two '
      + `principal components. At most ${count(data.embeddings)} samples; this machine embeds them once, while the server runs.`),
    said, place, start);
}

/** The point that an arrow key goes to: near, and rather ahead than aside. */
function towards(points, from, [right, down], at) {
  const [x, y] = at(from);
  const cost = (point) => {
    const [dx, dy] = [at(point)[0] - x, at(point)[1] - y];
    const ahead = dx * right + dy * down;
    return ahead > 0.5 ? ahead + 2 * Math.abs(dx * down - dy * right) : Infinity;
  };
  const costs = points.map(cost);
  const least = costs.reduce((a, b) => Math.min(a, b), Infinity);
  return least < Infinity ? points[costs.indexOf(least)] : from;
}

const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

function pointsOf(points) {
  const canvas = h('canvas', { role: 'application', tabindex: 0, 'aria-label': `Map of ${counted(points.length, 'images')}. Arrow keys go to the nearest image in that direction, Page Down and Page Up to the next and the previous sample, Enter opens it.` });
  const peek = h('img', { class: 'peek', alt: '', hidden: true });
  const said = h('p', { class: 'hush', role: 'status' });
  let held = null; // the point that the keyboard is at
  const at = ([, , x, y], width = canvas.clientWidth) => [10 + x * (width - 20), 10 + (1 - y) * (MAP_SIDE - 20)];
  const draw = () => {
    const width = canvas.clientWidth;
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    [canvas.width, canvas.height] = [width * scale, MAP_SIDE * scale];
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    pen.fillStyle = getComputedStyle(canvas).color;
    pen.globalAlpha = points.length > 2000 ? 0.45 : 0.75;
    for (const point of points) {
      pen.beginPath();
      pen.arc(...at(point, width), points.length > 2000 ? 2.5 : 4, 0, 7);
      pen.fill();
    }
    if (!held || document.activeElement !== canvas) return;
    pen.globalAlpha = 1;
    pen.lineWidth = 3;
    pen.strokeStyle = getComputedStyle(document.body).color;
    pen.beginPath();
    pen.arc(...at(held, width), 9, 0, 7);
    pen.stroke();
  };
  const under = (event) => {
    const room = canvas.getBoundingClientRect();
    const apart = (point) => { const [x, y] = at(point, room.width); return Math.hypot(x - (event.clientX - room.left), y - (event.clientY - room.top)); };
    const best = points.reduce((x, y) => (apart(y) < apart(x) ? y : x));
    return apart(best) <= REACH ? best : null;
  };
  const show = (point) => {
    peek.hidden = !point;
    if (!point) return;
    const [x, y] = at(point);
    peek.src = `image/${point[0]}`;
    peek.style.left = `${Math.min(x + 12, canvas.clientWidth - 150)}px`;
    peek.style.top = `${Math.min(y + 12, MAP_SIDE - 140)}px`;
  };
  const hold = (point) => {
    held = point;
    show(point);
    draw();
    said.textContent = `Sample ${count(point[0] + 1)}, ${point[1].slice(0, 16)}`;
  };
  const open = (point) => { if (point) location.hash = point[1].slice(0, 16); };
  const key = (event) => {
    const step = { PageDown: 1, PageUp: -1 }[event.key];
    const place = points.indexOf(held ??= points[0]);
    if (ARROWS[event.key]) hold(towards(points, held, ARROWS[event.key], at));
    else if (step) hold(points[(place + step + points.length) % points.length]);
    else if (event.key === 'Enter') open(held);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  canvas.addEventListener('mousemove', (event) => {
    const point = under(event);
    canvas.style.cursor = point ? 'pointer' : '';
    show(point);
  });
  canvas.addEventListener('mouseleave', () => show(null));
  canvas.addEventListener('click', (event) => open(under(event)));
  canvas.addEventListener('focus', () => { if (canvas.matches(':focus-visible')) hold(held || points[0]); });
  canvas.addEventListener('blur', () => { show(null); draw(); });
  canvas.addEventListener('keydown', key);
  new ResizeObserver(draw).observe(canvas);
  document.addEventListener('glit-theme', draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  return [canvas, peek, said];
}
