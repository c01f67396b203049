// Whether the page is visible. Effects: listens to the document.
//
// A browser opens at most six connections to a host, over all its tabs, so hidden pages keep none.

import { signal } from '@preact/signals'

export const isShown = signal(!document.hidden)

document.addEventListener('visibilitychange', () => {
  isShown.value = !document.hidden
})
