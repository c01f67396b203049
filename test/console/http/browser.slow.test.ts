// Goal: in a real browser a passkey logs in, and neither a page of another site nor a name that somebody leads here
// gets anything of a console that is open beside it.

import { expect, setDefaultTimeout, test } from 'bun:test'
import type { Page } from 'playwright-core'
import { until } from '../../../scripts/rigs/until.ts'
import { organizationById } from '../../../src/store/directory/organization.query.ts'
import { type ConsoleRig, linkToken, startConsole } from '../../rigs/console/console.ts'
import { addPasskeyDevice, openBrowser } from '../../rigs/console/trusting-browser.ts'

setDefaultTimeout(90_000)

/** Logs the browser in by a link, through the page's own script. */
async function logInPage(rig: Pick<ConsoleRig, 'origin' | 'asRoot'>, page: Page): Promise<void> {
  const done = page.waitForResponse(response => response.url().endsWith('/api/session') && response.status() === 201)
  await page.goto(`${rig.origin}/#token=${await linkToken(rig)}`)
  await done
}

test('goal: a passkey of the browser is made in a session and logs in after it; the link leaves no trace', async () => {
  await using rig = await startConsole()
  await using browser = await openBrowser(rig)
  const page = await browser.context.newPage()
  const violations: string[] = []
  page.on('console', message => violations.push(message.text()))
  await addPasskeyDevice(browser.context, page)
  await logInPage(rig, page)
  await until('the secret has left the address', 60_000, () => !page.url().includes('token'))
  // In the page, as its own script would: only there is WebAuthn, and the cookie.
  const [made, session] = await page.evaluate<[number, object]>(`(async () => {
    const post = (path, body) => fetch(path, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
    })
    const toMake = await (await post('/api/passkeys/options', {})).json()
    const key = await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(toMake) })
    const made = await post('/api/passkeys', { name: 'device', response: key.toJSON() })
    await fetch('/api/session', { method: 'DELETE', headers: { 'content-type': 'application/json' } })
    const toGet = await (await post('/api/session/passkey/options', {})).json()
    const signed = await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(toGet) })
    const session = await post('/api/session/passkey', { response: signed.toJSON() })
    return [made.status, await session.json()]
  })()`)
  expect([made, session]).toMatchObject([201, { actor: 'root', role: 'admin', by: 'passkey' }])
  expect(await page.evaluate('document.cookie')).toBe('')
  expect(violations.filter(text => text.includes('Content Security Policy'))).toEqual([])
})

/** A page of another site that tries all that a page can with a console in another tab. Result: what it got. */
function hostilePage(origin: string): string {
  return `<!doctype html><meta charset="utf-8"><title>hostile</title><body><iframe name="sink"></iframe><script>
    const target = ${JSON.stringify(origin)}
    const suspend = target + '/api/operator/organizations/acme/suspend'
    const outcome = async work => { try { return await work() } catch (error) { return String(error.name) } }
    const read = url => fetch(url, { credentials: 'include' }).then(response => response.text())
    const element = (name, set) => new Promise(done => {
      const made = document.createElement(name)
      made.onload = () => done('loaded')
      made.onerror = () => done('refused')
      set(made)
      document.body.append(made)
    })
    const form = (encoding, name) => {
      const made = document.createElement('form')
      Object.assign(made, { method: 'POST', action: suspend, enctype: encoding, target: 'sink' })
      const field = document.createElement('input')
      Object.assign(field, { name, value: '"}' })
      made.append(field)
      document.body.append(made)
      made.submit()
    }
    const search = target + '/api/operator/search?q=acme'
    const deletion = { method: 'DELETE', credentials: 'include', headers: { 'content-type': 'application/json' } }
    const cors = { method: 'POST', credentials: 'include', headers: { 'content-type': 'application/json' }, body: '{}' }
    const plain = { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}' }
    window.result = (async () => {
      const found = {
        read: await outcome(() => read(target + '/api/session')),
        readPage: await outcome(() => read(target + '/')),
        search: await outcome(() => read(search)),
        searchScript: await element('script', made => { made.src = search }),
        remove: await outcome(() => fetch(target + '/api/operator/instance?ref=i1', deletion).then(() => 'sent')),
        live: await new Promise(done => {
          const source = new EventSource(target + '/api/live', { withCredentials: true })
          source.onmessage = source.onopen = () => done('open')
          source.onerror = () => { source.close(); done('refused') }
        }),
        post: await outcome(() => fetch(suspend, cors).then(() => 'sent')),
        plain: await outcome(() => fetch(suspend, plain).then(response => response.type)),
        script: await element('script', made => { made.src = target + '/api/session' }),
        image: await element('img', made => { made.src = target + '/api/operator/status' }),
      }
      form('text/plain', '{"a":"')
      form('application/x-www-form-urlencoded', 'a')
      await element('iframe', made => { made.src = target + '/' })
      return found
    })()
  </script>`
}

test('goal: a page of another site reads, changes and frames nothing, with a session open in the same browser', async () => {
  await using rig = await startConsole()
  await using browser = await openBrowser(rig)
  const own = await browser.context.newPage()
  await logInPage(rig, own)
  const hostile = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: () => new Response(hostilePage(rig.origin), { headers: { 'content-type': 'text/html' } }),
  })
  try {
    const page = await browser.context.newPage()
    await page.goto(hostile.url.href)
    const found = await page.evaluate<Record<string, string>>('window.result')
    const { plain, ...refused } = found
    expect(refused).toEqual({
      read: 'TypeError',
      readPage: 'TypeError',
      search: 'TypeError',
      searchScript: 'refused',
      remove: 'TypeError',
      live: 'refused',
      post: 'TypeError',
      script: 'refused',
      image: 'refused',
    })
    // A request that a page may send without asking first: it cannot read the response, and nothing was done.
    expect(['opaque', 'TypeError']).toContain(plain ?? '')
    const framed = page.frames().filter(frame => frame !== page.mainFrame() && frame.name() !== 'sink')
    for (const frame of framed) expect(await frame.evaluate('document.getElementById("app") === null')).toBe(true)
    expect(framed.length).toBeGreaterThan(0)
    expect(organizationById(rig.store.directory.db, 'o1')?.status).toBe('active')
    await page.evaluate(`window.opened = window.open(${JSON.stringify(rig.origin)}); null`)
    await until('the window is cut off', 60_000, () => page.evaluate<boolean>('opened === null || opened.closed'))
  } finally {
    await hostile.stop(true)
  }
  const status = await own.evaluate<number>("fetch('/api/session').then(response => response.status)")
  expect(status).toBe(200)
})

test('goal: the session of a console with a name below localhost goes to no other server of the same machine', async () => {
  const name = 'strongroom.localhost'
  await using rig = await startConsole({ names: [name] })
  await using browser = await openBrowser(rig, [name])
  const page = await browser.context.newPage()
  await logInPage({ origin: `https://${name}:${rig.port}`, asRoot: rig.asRoot }, page)
  const cookies: (string | null)[] = []
  const other = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: request => {
      cookies.push(request.headers.get('cookie'))
      return new Response('another server')
    },
  })
  try {
    await (await browser.context.newPage()).goto(`http://localhost:${other.port}/`)
  } finally {
    await other.stop(true)
  }
  expect([...new Set(cookies)]).toEqual([null])
  expect(await page.evaluate<number>("fetch('/api/session').then(response => response.status)")).toBe(200)
})

test('goal: a name of another site that leads here shows nothing, and runs nothing', async () => {
  await using rig = await startConsole()
  await using browser = await openBrowser(rig, ['evil.example'])
  const page = await browser.context.newPage()
  const response = await page.goto(`https://evil.example:${rig.port}/`)
  expect(response?.status()).toBe(421)
  expect(await page.textContent('body')).toContain('The console is not at evil.example')
  const found = await page.evaluate<number>("fetch('/api/tenant').then(response => response.status)")
  expect(found).toBe(421)
})
