// A record of an upgrade for tests. Pure.

import { MIGRATIONS, schemaVersionOf } from '../../../src/store/db.ts'
import { type UpgradeRecord, upgradePaths } from '../../../src/upgrade/record.ts'

const schema = schemaVersionOf(MIGRATIONS)

export function sampleRecord(stateDir: string, changes: Partial<UpgradeRecord> = {}): UpgradeRecord {
  return {
    phase: 'prepared',
    from: { version: '0.1.0', schema },
    to: { version: '0.2.0', schema: schema + 1 },
    target: { kind: 'file', path: `${upgradePaths(stateDir).directory}/installed` },
    serve: ['serve'],
    config: null,
    waitMs: 1_000,
    reason: null,
    ...changes,
  }
}
