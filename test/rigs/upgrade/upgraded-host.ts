// A booted Debian whose appliance is upgraded: faults of the later executable, load, and what must hold before and
// after. Effects: those of `bootHost`; files in it.

import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DEPENDS } from '../../../scripts/package/control.ts'
import { bootHost, type ProvedHost, publicV4, uplink } from '../../../scripts/prove/host.ts'
import { recommended } from '../../../scripts/rigs/booted/tree.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { faultFile, type LaterFault } from '../../../scripts/rigs/upgrade/later-executable.ts'
import { dropInPath, upgradeUnit } from '../../../src/upgrade/host.driver.ts'
import type { UpgradeEnd, UpgradeRecord } from '../../../src/upgrade/record.ts'
import { Load } from './load.ts'

const stateDir = '/var/lib/strongroom'
const commandTimeoutMs = 240_000
const endTimeoutMs = 120_000

type Upgraded = { readonly exitCode: number; readonly end: Partial<UpgradeEnd>; readonly output: string }

export class UpgradedHost implements AsyncDisposable {
  readonly host: ProvedHost
  readonly load: Load

  private constructor(host: ProvedHost) {
    this.host = host
    this.load = new Load(host)
  }

  /** With all that the packages depend on. `files`: directories that it may read. */
  static async boot(files: readonly string[]): Promise<UpgradedHost> {
    const host = await bootHost(12, files)
    await host.apt('satisfy', ...DEPENDS, ...recommended)
    return new UpgradedHost(host)
  }

  inside(path: string): string {
    return `${this.host.debian.root}${path}`
  }

  /** The later executable fails like this from now on. */
  fault(fault: LaterFault | null): void {
    if (fault === null) rmSync(this.inside(faultFile), { force: true })
    else writeFileSync(this.inside(faultFile), fault)
  }

  async upgrade(file: string, ...words: string[]): Promise<Upgraded> {
    const argv = ['upgrade', file, '--without-backup', 'a test', '--wait', '20', '--json', ...words]
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

  /** SIGKILL to all that asks and works at once, as a power cut would, but the daemon. */
  async killAll(): Promise<void> {
    await this.host.debian.exec(['pkill', '--signal', 'KILL', '--full', 'strongroom upgrade|former upgrade'], {
      check: false,
    })
  }

  async reboot(): Promise<void> {
    await this.host.debian.reboot()
    uplink()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.load.stop()
    await this.host[Symbol.asyncDispose]()
    Bun.spawnSync(['ip', 'link', 'delete', 'up0'])
    Bun.spawnSync(['nft', 'flush', 'ruleset'])
  }
}

export const configText = `domain = "agents.test"
platform = "tcg"
[network]
public_v4 = "${publicV4}"
[listen]
inference = ""
[instances]
requests_per_minute = 1_000_000
`
