// Whether the page is visible. Effects: listens to the document.
//
// A browser opens six connections to a host at a time, of all its tabs: pages behind others hold none.

import { signal } from '@preact/signals'

export const isShown = signal(!document.hidden)

document.addEventListener('visibilitychange', () => {
  isShown.value = !document.hidden
})
