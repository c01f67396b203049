// An SVSM's statement about the TPM that it runs for this VM, from configfs-tsm. Effects: see configfs.ts. AMD 58019
// (SVSM), section 7 and its service GUIDs; Linux Documentation/ABI/testing/configfs-tsm-report: service_provider,
// service_guid, service_manifest_version, manifestblob.

import { systemErrorCode } from '../../base/fault.ts'
import type { SvsmService } from '../tpm/tpm.ts'
import { type ConfigFiles, generationOf, withEntry } from './configfs.ts'

/** The vTPM service; manifest version 0 is the endorsement key's TPMT_PUBLIC. */
const vtpmServiceGuid = 'c476f1eb-0123-45a5-9641-b4e7dde5bfe3'

/** Beside the entry that reports are made with. */
const entryName = 'strongroom-tpm'
const nonceBytes = 64
const manifestBytesMax = 4_096
/** One entry per written attribute. */
const writes = 4

/** Null if configfs-tsm has no SVSM. Then the kernel lacks the attributes or refuses the request. */
export async function findSvsm(reports: string, files: ConfigFiles): Promise<SvsmService | null> {
  try {
    await ask(reports, files, new Uint8Array(nonceBytes))
  } catch (error) {
    // ENOENT and EACCES: no such attribute. EINVAL, ENXIO, EOPNOTSUPP: no such provider.
    const code = systemErrorCode(error) ?? ''
    if (absent.has(code)) return null
    throw error
  }
  return nonce => ask(reports, files, nonce)
}

const absent: ReadonlySet<string> = new Set(
  ['ENOENT', 'ENXIO', 'ENOTDIR', 'EPERM', 'EACCES', 'EINVAL', 'EOPNOTSUPP', 'ENOTSUP'], //
)

function ask(
  reports: string,
  files: ConfigFiles,
  nonce: Uint8Array,
): Promise<{ readonly report: Uint8Array; readonly manifest: Uint8Array }> {
  if (nonce.length !== nonceBytes) throw new Error(`SVSM: a nonce of ${nonce.length} bytes`)
  const text = (value: string) => Buffer.from(value)
  return withEntry(
    reports,
    files,
    async entry => {
      const before = await generationOf(files, entry)
      await files.write(`${entry}/service_provider`, text('svsm'))
      await files.write(`${entry}/service_guid`, text(vtpmServiceGuid))
      await files.write(`${entry}/service_manifest_version`, text('0'))
      await files.write(`${entry}/inblob`, nonce)
      const report = Uint8Array.from(await files.read(`${entry}/outblob`))
      const manifest = Uint8Array.from(await files.read(`${entry}/manifestblob`))
      const after = await generationOf(files, entry)
      if (after !== before + writes) throw new Error(`SVSM: generation ${after}, not ${before + writes}`)
      if (manifest.length === 0 || manifest.length > manifestBytesMax)
        throw new Error(`SVSM: a manifest of ${manifest.length} bytes`)
      return { report, manifest }
    },
    entryName,
  )
}
