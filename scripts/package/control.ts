// Control data of the Debian packages (deb-control(5), deb-conffiles(5)), and where their payload goes. Pure.

export type Entry =
  /** A file of this machine, which is copied. */
  | { readonly kind: 'copy'; readonly path: string; readonly from: string; readonly mode: number }
  | { readonly kind: 'file'; readonly path: string; readonly bytes: Uint8Array; readonly mode: number }
  | { readonly kind: 'link'; readonly path: string; readonly target: string }

export type Control = {
  readonly name: string
  readonly version: string
  readonly maintainer: string
  readonly depends: readonly string[]
  readonly recommends: readonly string[]
  readonly summary: string
  readonly description: readonly string[]
}

/**
 * All that a host needs, on Debian 12 and 13 alike. So `apt install --no-install-recommends` leaves nothing out, and
 * brings no desktop: QEMU itself recommends its window for GTK.
 */
export const DEPENDS = [
  'libc6',
  // deb-systemd-invoke, systemd-sysusers, systemd-tmpfiles, scopes of VMs.
  'init-system-helpers (>= 1.60)',
  'systemd (>= 252)',
  'passwd',
  'qemu-system-x86 (>= 1:7.2)',
  'nftables (>= 1.0.6)',
  'conntrack',
  'iproute2',
  // The jail of every QEMU.
  'bubblewrap',
  // The TPM of VMs on kvm and tcg.
  'swtpm',
  // A model that is run on the host.
  'erofs-utils',
  // `strongroom init` and `strongroom ssh` log in.
  'openssh-client',
  // `build submit` and `verify build` of a tar.xz.
  'xz-utils',
  // /bin/kill, by which the unit reloads.
  'procps',
] as const

/**
 * Packages without which a part is missing, and the service says which. Debian 12 has QEMU 9.1 or later in
 * bookworm-backports alone; there apt goes on without it.
 */
export const RECOMMENDS = [
  'strongroom-images',
  // SNP guests.
  'qemu-system-x86 (>= 1:9.1)',
] as const

export function controlText(control: Control, installedBytes: number): string {
  const list = (name: string, packages: readonly string[]) =>
    packages.length === 0 ? [] : [`${name}: ${packages.join(', ')}`]
  return [
    `Package: ${control.name}`,
    `Version: ${control.version}`,
    'Architecture: amd64',
    `Maintainer: ${control.maintainer}`,
    `Installed-Size: ${Math.ceil(installedBytes / 1024)}`,
    ...list('Depends', control.depends),
    ...list('Recommends', control.recommends),
    'Section: admin',
    'Priority: optional',
    `Description: ${control.summary}`,
    ...control.description.map(line => (line === '' ? ' .' : ` ${line}`)),
    '',
  ].join('\n')
}

/** Files below /etc are the operator's: dpkg asks before it replaces one that was changed. */
export function conffilesText(entries: readonly Entry[]): string {
  return entries
    .filter(({ kind, path }) => kind !== 'link' && path.startsWith('etc/'))
    .map(({ path }) => `/${path}\n`)
    .toSorted()
    .join('')
}

/** `sums`: path to MD5, hexadecimal. dpkg --verify compares with it; conffiles are not part of it. */
export function md5sumsText(sums: ReadonlyMap<string, string>): string {
  return [...sums]
    .filter(([path]) => !path.startsWith('etc/'))
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([path, sum]) => `${sum}  ${path}\n`)
    .join('')
}

/** A maintainer script with its placeholders filled in. Throws for one that nobody fills. */
export function filled(script: string, values: Readonly<Record<string, string>>): string {
  return script.replaceAll(/@([A-Z]+)@/g, (_whole, name: string) => {
    const value = values[name]
    if (value === undefined) throw new Error(`a maintainer script has @${name}@, which nobody fills in`)
    return value
  })
}
