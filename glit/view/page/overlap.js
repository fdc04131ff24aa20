/* Images of a dataset beside those of a list. */

const data = JSON.parse(document.getElementById('data').textContent);
document.title = `${data.title} and ${data.list} · glit`;
document.getElementById('theme').remove();

function picture(image, name, note = '', gone = 'the image cannot be read') {
  return h('figure', {},
    image ? h('img', { src: image, alt: name, loading: 'lazy', decoding: 'async' }) : h('p', { class: 'gone' }, gone),
    h('figcaption', {}, name, note ? h('small', {}, note) : null));
}

const pairs = data.pairs.map((pair) => h('article', { class: 'pair', 'aria-label': pair.path },
  h('h2', {}, pair.kind, h('span', {}, `${pair.kind === 'meaning' ? 'cosine' : 'correlation'} ${pair.correlation.toFixed(3)}`)),
  picture(pair.image, pair.path),
  picture(pair.reference.image, pair.name, pair.reference.image && !pair.reference.is_file ? 'thumbnail of the list' : '', 'the list has only the hash of this file')));
const rest = data.found - data.pairs.length;
document.getElementById('main').append(h('section', {},
  h('p', { class: 'kicker' }, 'Images that are in a list'),
  h('h1', { class: 'title' }, data.title),
  h('p', { class: 'lead' }, `Of ${counted(data.images, 'images')}, ${count(data.found)} ${data.found === 1 ? 'is' : 'are'} in `, h('code', {}, data.list),
    ' or resemble one of its images. Left the dataset, right the list.'),
  h('div', { class: 'pairs' }, pairs),
  rest > 0 ? h('p', { class: 'lead' }, `and ${count(rest)} more: glit overlap --json lists them`) : null));
document.getElementById('foot').append(h('p', {}, `Made by glit ${data.glit}.`));
