// Addresses of upstream hosts, resolved by this VM's host, because the VM has no resolver. Effects: one file, to
// which the measured root's /etc/hosts links.
//
// A wrong address is no harm beyond a failed request: certificates and pins decide who an upstream is.

import { type Owner, writeFileAtomic } from '../linux/files.ts'

export class Hosts {
  readonly #file: string
  readonly #owner: Owner

  constructor(file: string, owner: Owner) {
    this.#file = file
    this.#owner = owner
  }

  write(hosts: Readonly<Record<string, readonly string[]>>): void {
    const lines = Object.entries(hosts).flatMap(([name, addresses]) => addresses.map(address => `${address} ${name}`))
    const text = ['127.0.0.1 localhost', ...lines].join('\n')
    writeFileAtomic(this.#file, `${text}\n`, { mode: 0o644, owner: this.#owner })
  }
}
