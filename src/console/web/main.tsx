// Placeholder of the page: logs in by the link and shows who it is. Effects: the page.

import './main.css'

declare const document: { getElementById(id: string): { textContent: string } | null }
declare const location: { hash: string; pathname: string }
declare const history: { replaceState(state: null, title: string, url: string): void }

async function show(): Promise<void> {
  const token = new URLSearchParams(location.hash.slice(1)).get('token')
  history.replaceState(null, '', location.pathname)
  const headers = { 'content-type': 'application/json' }
  const response =
    token === null
      ? await fetch('/api/session')
      : await fetch('/api/session', { method: 'POST', headers, body: JSON.stringify({ token }) })
  const place = document.getElementById('app')
  if (place !== null) place.textContent = await response.text()
}

await show()
