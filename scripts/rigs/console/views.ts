// Usage of an instance and results of a search, for a scripted console. Pure.

import type { AdminInstanceUsage } from '../../../src/contract/admin/views/instance-usage.ts'
import type { AdminSearch } from '../../../src/contract/admin/views/search.ts'
import { at, hostileText } from './documents.ts'

/** One hour of samples. */
export const INSTANCE_USAGE: AdminInstanceUsage = {
  vcpus: 2,
  memory_bytes: 4_294_967_296,
  points: Array.from({ length: 120 }, (_, index) => ({
    at: at((120 - index) * 30),
    cpus: index === 0 ? null : 0.25 + (index % 10) / 10,
    memory_bytes: 1_073_741_824 + index * 1_048_576,
    egress_bytes: index * 786_432,
  })),
}

export const SEARCH: AdminSearch = {
  organizations: [{ slug: 'acme', status: 'active' }],
  instances: [{ organization: 'acme', name: 'aaaaaaa1', status: 'ready' }],
  keys: [{ kind: 'ca', prefix: 'k3v9x2ab', organization: 'acme', state: 'active' }],
  builds: [
    {
      ...{ id: '4f9d2c1e-6c1b-4f0e-9c39-0a9a5f6b7c8d', organization: null, state: 'ok' },
      source: hostileText,
    },
  ],
  more: false,
}
