// Contents of the packages. Effects: reads the units, the images and the licence of this repository.

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { configReference } from '../../src/config/reference.ts'
import { type CommandNode, commandTree } from './command-tree.ts'
import { bashCompletion, fishCompletion, zshCompletion } from './completions.ts'
import { type Control, DEPENDS, type Entry, filled, RECOMMENDS } from './control.ts'
import { manPages } from './man-pages.ts'
import { type UnitFile, unitsOf } from './units.ts'

export type Package = {
  readonly control: Control
  readonly entries: readonly Entry[]
  readonly scripts: Readonly<Record<string, string>>
}

type Facts = {
  readonly repo: string
  readonly version: string
  readonly maintainer: string
  /** Seconds since 1970: when this version was made. */
  readonly epochS: number
}

/** The appliance: executable, units, user, completions, man pages. */
export function appliancePackage({ executable, ...facts }: Facts & { executable: string }): Package {
  const { repo, version, maintainer } = facts
  const units = unitsOf(readUnits(join(repo, 'scripts/systemd')))
  const tree = commandTree()
  const lib = `usr/lib/strongroom/${version}`
  const hostFile = (path: string, name: string) =>
    textFile(path, readFileSync(join(repo, 'scripts/package/host', name), 'utf8'))
  const values = { ENABLED: units.enabled.join(' '), RESTARTED: units.restarted.join(' ') }
  return {
    control: {
      name: 'strongroom',
      version,
      maintainer,
      depends: DEPENDS,
      recommends: RECOMMENDS,
      summary: 'confidential-compute appliance for AMD SEV-SNP servers',
      description: [
        'Agent VMs, an attested inference gateway and attested builds, each in a VM',
        'whose evidence clients verify instead of trusting the operator.',
        '',
        'VMs run on SEV-SNP with QEMU 9.1 or later, else on KVM, else under software',
        'emulation; evidence of the latter two says SIMULATED. Debian 12 has QEMU 9.1',
        'in bookworm-backports.',
      ],
    },
    entries: [
      { kind: 'copy', path: `${lib}/strongroom`, from: executable, mode: 0o755 },
      // An upgrade moves one link.
      { kind: 'link', path: 'usr/lib/strongroom/current', target: version },
      { kind: 'link', path: 'usr/bin/strongroom', target: '../lib/strongroom/current/strongroom' },
      ...units.files.map(({ path, text }) => textFile(path, text)),
      textFile('usr/lib/sysusers.d/strongroom.conf', sysusers),
      textFile('usr/lib/tmpfiles.d/strongroom.conf', tmpfiles),
      // Before any other file for this link: the first that matches counts.
      hostFile('usr/lib/systemd/network/00-strongroom.network', 'strongroom.network'),
      hostFile('etc/needrestart/conf.d/strongroom.conf', 'needrestart.conf'),
      textFile('usr/share/strongroom/strongroom.toml', commentedConfig()),
      ...monitoringEntries(repo),
      ...completionEntries(tree),
      ...manPages(tree, version).map(({ name, text }) => gzipped(`usr/share/man/man${name.at(-1)}/${name}.gz`, text)),
      ...documentation('strongroom', facts),
    ],
    scripts: scriptsOf(repo, 'strongroom', ['preinst', 'postinst', 'prerm', 'postrm'], values),
  }
}

export const imagesDir = 'usr/lib/strongroom-images'

/** Alert rules, an example of a configuration of Prometheus, and a dashboard for Grafana. */
function monitoringEntries(repo: string): Entry[] {
  const directory = join(repo, 'scripts/monitoring')
  return readdirSync(directory)
    .toSorted()
    .map(name => textFile(`usr/share/strongroom/monitoring/${name}`, readFileSync(join(directory, name), 'utf8')))
}

/** The guest images, each under a name that tells its content, so that an upgrade changes none in place. */
export function imagesPackage({ images, ...facts }: Facts & { images: readonly string[] }): Package {
  const { repo, version, maintainer } = facts
  const named = images.map(directory => ({ directory, name: imageName(directory) }))
  const values = { IMAGES: named.map(({ name }) => name).join(' '), DIRECTORY: `/${imagesDir}` }
  return {
    control: {
      name: 'strongroom-images',
      version,
      maintainer,
      depends: [],
      recommends: [],
      summary: 'guest images of the strongroom appliance',
      description: [
        `The measured images of its VMs: ${named.map(({ name }) => name.replace(/-[0-9a-f]+$/, '')).join(', ')}.`,
        'Publish the manifest.json of each: clients pin what it names.',
      ],
    },
    entries: [
      ...named.flatMap(({ directory, name }) =>
        readdirSync(directory)
          .toSorted()
          .map((file): Entry => {
            return { kind: 'copy', path: `${imagesDir}/${name}/${file}`, from: join(directory, file), mode: 0o644 }
          }),
      ),
      ...documentation('strongroom-images', facts),
    ],
    scripts: scriptsOf(repo, 'strongroom-images', ['postinst', 'postrm'], values),
  }
}

/** `instance-0123456789abcdef`: the image's own name, and a digest of its manifest, which names all its files. */
function imageName(directory: string): string {
  const bytes = readFileSync(join(directory, 'manifest.json'))
  const name: unknown = Reflect.get(Object(JSON.parse(bytes.toString())), 'name')
  if (typeof name !== 'string' || !/^[a-z]+$/.test(name)) throw new Error(`${directory}: no image that can be packed`)
  return `${name}-${createHash('sha256').update(bytes).digest('hex').slice(0, 16)}`
}

function readUnits(directory: string): UnitFile[] {
  return readdirSync(directory).map(name => ({ name, text: readFileSync(join(directory, name), 'utf8') }))
}

const sysusers = `# The built-in inference worker runs as this user. Each VM's QEMU has a number of its own, which needs no user.
u strongroom-vm - "Strongroom inference worker" /nonexistent
`

const tmpfiles = `# Other users may pass through the state directory, to images and the worker's directories.
d /etc/strongroom 0755 root root -
d /var/lib/strongroom 0711 root root -
d /var/lib/strongroom/images 0755 root root -
`

/** Every field with its default, as a comment; as a configuration it is empty. */
export function commentedConfig(): string {
  const lines = configReference().split('\n')
  const title = [
    '# Configuration of strongroom: strongroom.toml(5). Every field may be left out; the values here are the defaults.',
    '# `strongroom init` asks what this host needs. `strongroom config check` finds mistakes.',
  ]
  const rest = lines
    .slice(1)
    .map(line => (line === '' || line.startsWith('#') || line.startsWith('[') ? line : `#${line}`))
  return [...title, ...rest].join('\n')
}

function completionEntries(tree: readonly CommandNode[]): Entry[] {
  return [
    textFile('usr/share/bash-completion/completions/strongroom', bashCompletion(tree)),
    textFile('usr/share/zsh/vendor-completions/_strongroom', zshCompletion(tree)),
    textFile('usr/share/fish/vendor_completions.d/strongroom.fish', fishCompletion(tree)),
  ]
}

/** Licence, changelogs, and findings of lintian(1) that stay, each with its reason. */
function documentation(name: string, { repo, ...facts }: Facts): Entry[] {
  const directory = `usr/share/doc/${name}`
  const overrides = readFileSync(join(repo, `scripts/package/debian/${name}.lintian-overrides`), 'utf8')
  // A version without a revision has one changelog, in Debian's form.
  const isNative = !facts.version.includes('-')
  return [
    textFile(`${directory}/copyright`, readFileSync(join(repo, 'LICENSE'), 'utf8')),
    gzipped(`${directory}/CHANGELOG.md.gz`, readFileSync(join(repo, 'CHANGELOG.md'), 'utf8')),
    gzipped(`${directory}/changelog${isNative ? '' : '.Debian'}.gz`, debianChangelog(name, facts)),
    textFile(`usr/share/lintian/overrides/${name}`, overrides),
  ]
}

/** deb-changelog(5), of this version alone. */
function debianChangelog(name: string, { version, maintainer, epochS }: Omit<Facts, 'repo'>): string {
  const date = new Date(epochS * 1000).toUTCString().replace('GMT', '+0000')
  return `${name} (${version}) stable; urgency=medium

  * New in this version: see /usr/share/doc/${name}/CHANGELOG.md.gz.

 -- ${maintainer}  ${date}
`
}

function scriptsOf(
  repo: string,
  name: string,
  scripts: readonly string[],
  values: Readonly<Record<string, string>>,
): Record<string, string> {
  const textOf = (script: string) => readFileSync(join(repo, `scripts/package/debian/${name}.${script}`), 'utf8')
  return Object.fromEntries(scripts.map(script => [script, filled(textOf(script), values)]))
}

function textFile(path: string, text: string): Entry {
  return { kind: 'file', path, bytes: Buffer.from(text), mode: 0o644 }
}

/** Without name and time in its header, so that the bytes depend on the text alone. */
function gzipped(path: string, text: string): Entry {
  return { kind: 'file', path, bytes: gzipSync(text, { level: 9 }), mode: 0o644 }
}
