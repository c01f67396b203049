// Judges the evidence of a VM's GPUs with manifests and OCSP responses, for relying parties. Pure. Never throws for bad
// evidence.

import { type BoundQuestion, type BoundVerdict, judgeBoundGpus } from './bound-judge.ts'
import { portableP384 } from './portable-p384.ts'
import { type GpuFilesQuestion, judgeFiles } from './verify.ts'

/** Judges evidence. Throws Malformed if a root is unreadable. */
export function verifyBoundGpus(question: Omit<BoundQuestion, 'verify'> & GpuFilesQuestion): BoundVerdict {
  return judgeBoundGpus({ ...question, verify: portableP384 }, () => judgeFiles(question))
}
