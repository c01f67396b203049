// The part of the demonstration that is about attested builds: one is submitted and verified, then its boot image is
// pulled and held against it. Effects: files below the demonstration's directory, processes in its namespace.

import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Steps } from './steps.ts'

export type BuildDemo = {
  /** Runs a command to its end inside the namespace; standard output, or throws. */
  readonly run: (argv: readonly string[], env?: Record<string, string>) => Promise<string>
  readonly executable: string
  readonly directory: string
  readonly stateDir: string
  /** Address of service C: https://HOST:PORT. */
  readonly url: string
  readonly key: string
  /** Directory of the builder image that the demonstration has built itself. */
  readonly builder: string
}

/** Settings that the printed commands need here: the authority, and that the platform is simulated. */
type Settings = { readonly home: string; readonly env: Readonly<Record<string, string>> }

export async function buildSteps({ step }: Pick<Steps, 'step'>, demo: BuildDemo): Promise<void> {
  const { run, executable, directory, url, key } = demo
  const project = join(directory, 'hello')
  writeProject(project)
  const { home, env } = settingsOf(demo)
  const submitted = await step('strongroom build submit ./hello', async () => {
    // The pulled boot image is compared with the launch of the VM below.
    const argv = [executable, 'build', 'submit', project, '--output', home, '--any-measurement', '--json']
    return JSON.parse(await run(argv, env)) as { readonly job_id: string; readonly archive: string }
  })
  const { commands } = await step('GET /build/{id}', async () => {
    const header = `Authorization: Bearer ${key}`
    const argv = ['curl', '--silent', '--show-error', '--fail', '--cacert', env.SSL_CERT_FILE ?? '', '--header', header]
    return JSON.parse(await run([...argv, `${url}/build/${submitted.job_id}`])) as { readonly commands: string[] }
  })
  const policy = await step('strongroom verify policy-example', async () => {
    const path = join(directory, 'builder-policy.json')
    writeFileSync(path, await run([executable, 'verify', 'policy-example', '--image', demo.builder], env))
    return path
  })
  // The printed commands, in the client's directory; the client adds the source it sent and the builder it expects.
  for (const command of commands) {
    await step(command.replace(/^(.{60}).+$/, '$1…'), async () => {
      const said = await run(
        ['sh', '-c', `cd "$HOME" && ${command.replace('SOURCE', project).replace('POLICY', policy)}`],
        env,
      )
      return command.includes('verify') ? said.trim().replaceAll('\n', '\n          ') : ''
    })
  }
}

function settingsOf({ directory, stateDir, executable, url, key }: BuildDemo): Settings {
  const home = join(directory, 'client-home')
  mkdirSync(join(home, '.config/strongroom'), { recursive: true })
  const ca = join(stateDir, 'ca/ca.pem')
  const settings = { builds: url, ca, trust_simulated_root: join(stateDir, 'simulator/root.pem') }
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${JSON.stringify(value)}\n`)
  writeFileSync(join(home, '.config/strongroom/client.toml'), lines.join(''), { mode: 0o600 })
  const path = `${dirname(executable)}:${process.env.PATH}`
  // curl and skopeo know nothing of client.toml.
  return { home, env: { HOME: home, PATH: path, STRONGROOM_API_KEY: key, SSL_CERT_FILE: ca, CURL_CA_BUNDLE: ca } }
}

function writeProject(directory: string): void {
  mkdirSync(join(directory, 'src'), { recursive: true })
  const package_ = '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2021"\n'
  writeFileSync(join(directory, 'Cargo.toml'), package_)
  writeFileSync(join(directory, 'Cargo.lock'), 'version = 3\n\n[[package]]\nname = "hello"\nversion = "0.1.0"\n')
  writeFileSync(join(directory, 'src/main.rs'), 'fn main() {\n    println!("hello");\n}\n')
}
