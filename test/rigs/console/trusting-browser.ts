// Chromium with a console: it trusts the console's key, finds it by names of the test, and has a passkey device in
// software. Effects: a browser in a profile of its own.

import { createHash, X509Certificate } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import type { BrowserContext, Page } from 'playwright-core'
import { launchChromium } from '../../../scripts/rigs/chromium.ts'
import type { ConsoleRig } from './console.ts'

export type ConsoleBrowser = AsyncDisposable & { readonly context: BrowserContext }

/** `names`: besides localhost, led to this machine. WebAuthn needs a certificate that the browser takes for good. */
export async function openBrowser(
  rig: Pick<ConsoleRig, 'port' | 'ca'>,
  names: readonly string[] = [],
): Promise<ConsoleBrowser> {
  const profile = mkdtempSync(join(tmpdir(), 'srt-console-'))
  const led = names.map(name => `MAP ${name} 127.0.0.1, `).join('')
  const context = await launchChromium(profile, {
    args: [
      `--host-resolver-rules=${led}MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1`,
      `--ignore-certificate-errors-spki-list=${await keyPin(rig)}`,
    ],
  })
  return {
    context,
    [Symbol.asyncDispose]: async () => {
      await context.close()
      rmSync(profile, { recursive: true, force: true })
    },
  }
}

/** A device that verifies its user, and keeps passkeys, for this page. */
export async function addPasskeyDevice(context: BrowserContext, page: Page): Promise<void> {
  const devtools = await context.newCDPSession(page)
  await devtools.send('WebAuthn.enable')
  await devtools.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  })
}

/** SHA-256 of the served key, base64. */
function keyPin({ port, ca }: Pick<ConsoleRig, 'port' | 'ca'>): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, ca, servername: 'localhost' }, () => {
      const { publicKey } = new X509Certificate(socket.getPeerCertificate(true).raw)
      const spki = publicKey.export({ format: 'der', type: 'spki' })
      socket.end()
      resolve(createHash('sha256').update(spki).digest('base64'))
    })
    socket.on('error', reject)
  })
}
