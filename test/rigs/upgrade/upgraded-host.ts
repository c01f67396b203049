// A booted Debian whose appliance is upgraded: faults of the later executable, load, and what must hold before and
// after. Effects: those of `bootHost`; files in it.

import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { bootTree, type ProvedHost, publicV4, uplink } from '../../../scripts/prove/host.ts'
import { debianTree } from '../../../scripts/rigs/booted/tree.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { faultFile, type LaterFault } from '../../../scripts/rigs/upgrade/later-executable.ts'
import { dropInPath, upgradeUnit } from '../../../src/upgrade/host.driver.ts'
import type { UpgradeEnd, UpgradeRecord } from '../../../src/upgrade/record.ts'
import type { Phase } from '../../../src/upgrade/upgrade.machine.ts'
import { Load } from './load.ts'

const repo = resolve(import.meta.dir, '../../..')
const stateDir = '/var/lib/strongroom'
/** For an upgrade on a busy machine, with its doctor, which reads the images twice. */
const commandTimeoutMs = 480_000
const endTimeoutMs = 240_000

type Upgraded = { readonly exitCode: number; readonly end: Partial<UpgradeEnd>; readonly output: string }

export class UpgradedHost implements AsyncDisposable {
  readonly host: ProvedHost
  readonly load: Load

  private constructor(host: ProvedHost) {
    this.host = host
    this.load = new Load(host)
  }

  /** A Debian with all that the service needs. `files`: directories that it may read. */
  static async boot(files: readonly string[]): Promise<UpgradedHost> {
    return new UpgradedHost(await bootTree(await debianTree(), files))
  }

  /** A Debian that has booted. */
  static of(host: ProvedHost): UpgradedHost {
    return new UpgradedHost(host)
  }

  /** `strongroom help install`, "By hand", without a gateway. */
  async installByHand(executable: string, image: string): Promise<void> {
    const put = (from: string, to: string, mode = 0o644) => {
      mkdirSync(dirname(this.inside(to)), { recursive: true })
      copyFileSync(from, this.inside(to))
      chmodSync(this.inside(to), mode)
    }
    const units = join(repo, 'scripts/systemd')
    put(executable, '/usr/local/bin/strongroom', 0o755)
    for (const name of readdirSync(units).filter(name => /\.(service|socket)$/.test(name)))
      put(join(units, name), `/etc/systemd/system/${name}`)
    mkdirSync(this.inside('/etc/strongroom'), { recursive: true })
    writeFileSync(this.inside('/etc/strongroom/strongroom.toml'), `${configText}[vm]\nimage_dir = "${image}"\n`)
    await this.host.debian.exec(['systemctl', 'daemon-reload'])
    await this.host.debian.exec(['systemctl', 'enable', '--now', 'strongroom.service'])
    await this.host.answers()
  }

  inside(path: string): string {
    return `${this.host.debian.root}${path}`
  }

  /** The later executable fails like this from now on. */
  fault(fault: LaterFault | null): void {
    if (fault === null) rmSync(this.inside(faultFile), { force: true })
    else writeFileSync(this.inside(faultFile), fault)
  }

  /** `waitS`: how long the later executable may take to answer. */
  async upgrade(file: string, { waitS = 20 } = {}): Promise<Upgraded> {
    const argv = ['upgrade', file, '--without-backup', 'a test', '--wait', String(waitS), '--json']
    const { exitCode, stdout, stderr } = await this.host.strongroom(argv, commandTimeoutMs)
    let end: Partial<UpgradeEnd> = {}
    try {
      end = JSON.parse(stdout) as UpgradeEnd
    } catch {
      // Killed before it could say anything.
    }
    return { exitCode, end, output: `${stdout}${stderr}` }
  }

  record(): UpgradeRecord | null {
    const path = this.inside(`${stateDir}/upgrade/record.json`)
    return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as UpgradeRecord) : null
  }

  async isEnded(): Promise<void> {
    await until('the upgrade is ended', endTimeoutMs, () => this.record() === null)
  }

  async status(): Promise<{ readonly version: string; readonly pid: number; readonly problems: readonly unknown[] }> {
    return JSON.parse((await this.host.strongroom(['status', '--json'])).stdout)
  }

  /** `name: detail` of the doctor's check. */
  async schema(): Promise<string> {
    const { stdout } = await this.host.strongroom(['doctor', '--no-canary', '--json'])
    const { checks } = JSON.parse(stdout) as { checks: { name: string; detail: string }[] }
    return checks.find(({ name }) => name === 'database')?.detail ?? ''
  }

  /** Files of an upgrade that would change the next start. */
  traces(): string[] {
    const upgrade = `${stateDir}/upgrade`
    const files = ['record.json', 'candidate', 'candidate.deb', 'before.db', 'unpacked'].map(name =>
      join(upgrade, name),
    )
    return [...files, dropInPath, `/etc/systemd/system/${upgradeUnit}`].filter(path => existsSync(this.inside(path)))
  }

  /** The next upgrade stops in this phase, before its first systemctl(1): some phases take less time than a look. */
  hold(phase: Phase): void {
    const wrapper = this.inside('/usr/local/sbin/systemctl')
    mkdirSync(dirname(wrapper), { recursive: true })
    writeFileSync(wrapper, HOLDING_SYSTEMCTL, { mode: 0o755 })
    writeFileSync(this.inside(holdFile), phase)
  }

  /** Throws if the upgrade ends before. */
  async isHeld(upgrade: Promise<Upgraded>): Promise<void> {
    const early = upgrade.then(({ output }) => {
      throw new Error(`it ended before it was held: ${output}`)
    })
    early.catch(() => {})
    await Promise.race([early, until('the upgrade is held', endTimeoutMs, () => existsSync(this.inside(heldFile)))])
  }

  /** SIGKILL to all that asks and works at once, as a power cut would, but the daemon. */
  async killAll(): Promise<void> {
    for (const file of [holdFile, heldFile]) rmSync(this.inside(file), { force: true })
    const pattern = 'strongroom upgrade|former upgrade|sleep 1000'
    await this.host.debian.exec(['pkill', '--signal', 'KILL', '--full', pattern], { check: false })
  }

  async reboot(): Promise<void> {
    await this.host.debian.reboot()
    uplink()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.load.stop()
    } finally {
      await this.host[Symbol.asyncDispose]()
    }
    Bun.spawnSync(['ip', 'link', 'delete', 'up0'])
    Bun.spawnSync(['nft', 'flush', 'ruleset'])
  }
}

const holdFile = '/run/strongroom-hold'
const heldFile = '/run/strongroom-held'
/** Before the real one on the PATH of the executable's commands. */
const HOLDING_SYSTEMCTL = `#!/bin/sh
record=${stateDir}/upgrade/record.json
if [ -e ${holdFile} ] && grep --quiet "\\"phase\\": \\"$(cat ${holdFile})\\"" "$record"; then
  touch ${heldFile}
  exec sleep 1000
fi
exec /usr/bin/systemctl "$@"
`

export const configText = `domain = "agents.test"
platform = "tcg"
[network]
public_v4 = "${publicV4}"
[listen]
inference = ""
[instances]
requests_per_minute = 1_000_000
`
