/* For readers without a mouse: wide tables scroll by keys, and every code block's menu has a name of its own. */
document$.subscribe(() => setTimeout(() => {
  document.querySelectorAll(".md-typeset__scrollwrap").forEach(each => { each.tabIndex = 0 })
  document.querySelectorAll("[role=dialog]").forEach(each => { each.ariaLabel = "Search" })
  document.querySelectorAll(".md-code__nav").forEach((each, n) => { each.ariaLabel = `Code ${n + 1}` })
}))
