// Debian's Chromium without a window, driven by Playwright. Effects: a process.

import { type BrowserContext, chromium } from 'playwright-core'

const startTimeoutMs = 60_000
const chromiumPath = '/usr/bin/chromium'
const chromiumArguments = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
]

export type ChromiumOptions = {
  readonly ignoreHTTPSErrors?: boolean
  /** More of its arguments: of two with the same name the last one counts. */
  readonly args?: readonly string[]
  /** Added to this process's. */
  readonly env?: Readonly<Record<string, string>>
}

/** With this folder as its profile and home. It reaches this machine alone; its caller closes it. */
export async function launchChromium(
  profile: string,
  { args = [], env = {}, ...options }: ChromiumOptions = {},
): Promise<BrowserContext> {
  return await chromium.launchPersistentContext(profile, {
    ...options,
    executablePath: chromiumPath,
    args: [...chromiumArguments, ...args],
    env: { ...process.env, ...env, HOME: profile },
    timeout: startTimeoutMs,
  })
}
