// Everything that the relying party's code does with the vectors, as one function from text to text: bundled once, run
// in every runtime. Pure.

import { canonicalJson } from './canonical.ts'
import { encryptionSuite } from './encryption-suite.ts'
import { gatewaySuite } from './gateway-suite.ts'
import { Vectors } from './input.ts'
import { instanceSuite } from './instance-suite.ts'
import { launchSuite } from './launch-suite.ts'
import { reportSuite } from './report-suite.ts'
import { simulatedSuite } from './simulated-suite.ts'
import { tpmSuite } from './tpm-suite.ts'

/** Takes a SuiteInput as JSON, gives the results as canonical JSON. */
export async function runSuite(input: string): Promise<string> {
  const vectors = new Vectors(input)
  return canonicalJson({
    reports: await reportSuite(vectors),
    launches: await launchSuite(vectors),
    tpm: await tpmSuite(vectors),
    simulated: await simulatedSuite(vectors),
    gateway: await gatewaySuite(vectors),
    instance: await instanceSuite(vectors),
    encryption: await encryptionSuite(vectors),
  })
}
