// The admin interface without a socket, asked as root; and what tests of it that name no administrators give it.

import { NO_FLEET_ADMIN } from '../../src/fleet/hosts/fleet-admin.ts'
import type { Admin } from '../../src/operator/api.ts'
import type { AdminDeps } from '../../src/operator/deps.ts'

export const NO_ADMINISTRATORS = {
  administrators: [],
  ownerUid: 0,
  admitChange: () => {},
  removeOrganization: () => {},
  console: null,
  buildLog: null,
  fleet: NO_FLEET_ADMIN,
  hostName: () => null,
  vmUsage: () => [],
  testAlerts: null,
  takeHostCommands: () => {},
  chips: {
    own: () => [],
    name: () => {},
    digest: '',
    isInFleet: false,
    get keys(): CryptoKeyPair {
      throw new Error('this test signs no chips')
    },
  },
  maintenance: { view: () => null, begin: notice => ({ since: '', ...notice }), end: () => false },
  instanceHours: () => Promise.reject(new Error('this test sums no instance-hours')),
  transparency: {
    log: {
      key: () => null,
      head: () => null,
      shown: () => 0,
      signed: () => null,
      cosignatures: () => [],
      cosign: async () => [],
      append: () => {},
      entries: () => [],
      failure: () => null,
    },
    named: [],
    witnesses: { problem: () => null, failingSinceMs: () => null },
  },
} as const satisfies Partial<AdminDeps>

export function asRoot(admin: Admin): (request: Request) => Promise<Response> {
  return request => admin.handle(request, { uid: 0, gid: 0, pid: 1, socket: 'admin' })
}
