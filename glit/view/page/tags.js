/* Tags and saved views. This browser keeps them, by the dataset's name and fingerprints; no server. */

const MOST_IN_A_LINE = 1500; // ids; a shell takes no longer words

/** What is kept: a map of tags to ids, and one of names to addresses. Others may have written it. */
function keeper(key, onFault) {
  let here = '{}'; // for browsers that keep nothing
  const entries = (value, fits) => new Map((Array.isArray(value) ? value : []).filter((each) => Array.isArray(each) && typeof each[0] === 'string' && fits(each[1])));
  const read = () => {
    let [text, found] = [here, {}];
    try { text = localStorage.getItem(key) ?? here; } catch { /* not allowed */ }
    try { found = JSON.parse(text) ?? {}; } catch { /* damaged */ }
    const isIds = (ids) => Array.isArray(ids) && ids.every((id) => /^[0-9a-f]{64}$/.test(id));
    return { tags: entries(found.tags, isIds), views: entries(found.views, (address) => /^#/.test(address)) };
  };
  const change = (action) => {
    const now = read();
    action(now);
    here = JSON.stringify({ tags: [...now.tags].filter(([, ids]) => ids.length), views: [...now.views] });
    try { localStorage.setItem(key, here); } catch { onFault(); }
  };
  return { read, change };
}

/** The fields of tags and views; `choose(tag)` filters, `address()` is that of the present view. */
function shelfOf(data, { choose, address }) {
  const fault = h('p', { role: 'status', hidden: true }, 'This browser does not keep them: they last until the page is closed.');
  const kept = keeper(`glit ${data.name} ${data.fingerprint}`, () => { fault.hidden = false; });
  const known = h('datalist', { id: 'tags' });
  const tag = h('input', { list: 'tags', value: 'marked', maxlength: 60, onchange: () => refresh() });
  const tagged = h('select', { onchange: () => choose(tagged.value) });
  const views = h('select', { onchange: () => { if (views.value) location.hash = kept.read().views.get(views.value); remove.disabled = !views.value; } });
  const name = h('input', { maxlength: 60, placeholder: 'a name', onkeydown: (event) => { if (event.key === 'Enter') save(); } });
  const option = (value, words = value) => h('option', { value }, words);
  const nameOf = () => tag.value.trim() || 'marked';
  const refresh = () => {
    const now = kept.read();
    const marked = [...now.tags].map(([each, ids]) => [each, new Set(ids)]);
    const [chosen, opened] = [tagged.value, views.value];
    known.replaceChildren(...marked.map(([each]) => option(each)));
    tagged.replaceChildren(option('', 'any or none'), ...marked.map(([each, ids]) => option(each, `${each} (${count(ids.size)})`)));
    views.replaceChildren(option('', now.views.size ? 'choose' : 'none yet'), ...[...now.views.keys()].sort().map((each) => option(each)));
    tagged.value = now.tags.has(chosen) ? chosen : '';
    views.value = now.views.has(opened) ? opened : '';
    remove.disabled = !views.value;
    for (const button of document.querySelectorAll('button.tag')) tell(button, marked);
    if (marked.length || now.views.size) shelf.open = true;
  };
  const tell = (button, marked = [...kept.read().tags].map(([each, ids]) => [each, new Set(ids)])) => {
    const mine = marked.filter(([, ids]) => ids.has(button.dataset.id)).map(([each]) => each);
    button.textContent = mine.length ? `★ ${mine.join(', ')}` : '☆ tag';
    button.setAttribute('aria-pressed', mine.includes(nameOf()));
    button.title = `${mine.includes(nameOf()) ? 'remove' : 'give'} the tag “${nameOf()}” (t)`;
  };
  const toggle = (id) => {
    kept.change(({ tags }) => {
      const ids = tags.get(nameOf()) || [];
      tags.set(nameOf(), ids.includes(id) ? ids.filter((each) => each !== id) : [...ids, id]);
    });
    refresh();
  };
  const save = () => {
    if (!name.value.trim()) return;
    kept.change((now) => now.views.set(name.value.trim(), address() || '#'));
    refresh();
    views.value = name.value.trim();
    remove.disabled = false;
    name.value = '';
  };
  const remove = h('button', { type: 'button', class: 'copy', onclick: () => { kept.change((now) => now.views.delete(views.value)); refresh(); } }, 'Remove');
  const shelf = h('details', { class: 'shelf' }, h('summary', {}, 'Tags and saved views'), h('div', { class: 'fields' },
    h('label', {}, 'The key t gives the tag', tag), known, h('label', {}, 'Tagged', tagged),
    h('label', {}, 'Save this view as', name), h('button', { type: 'button', class: 'copy', onclick: save }, 'Save'),
    h('label', {}, 'Saved views', views), remove), fault);
  window.addEventListener('storage', refresh);
  refresh();
  shelf.control = tagged;
  shelf.idsOf = (each) => kept.read().tags.get(each) || [];
  /** A button for tags on a sample's card. */
  shelf.dress = (made, sample) => {
    const button = h('button', { type: 'button', class: 'tag', 'data-id': sample.id, onclick: () => toggle(sample.id) });
    tell(button);
    if (sample.cosine !== undefined) made.querySelector('.top').append(h('span', {}, `cosine ${cosine(sample.cosine)}`));
    made.querySelector('.top').append(data.embeddings ? h('a', { class: 'like', href: `#like=${sample.n}` }, '≈ similar') : '', button);
    return made;
  };
  return shelf;
}

function download(name, words) {
  const url = URL.createObjectURL(new Blob([words], { type: 'text/plain' }));
  h('a', { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}
