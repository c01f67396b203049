// A Sigstore bundle v0.3 (sigstore/protobuf-specs, sigstore_bundle.proto) of the statement. Pure; throws Malformed.
//
// A bundle's envelope has exactly one signature, so it holds the Ed25519 signature of the DSSE envelope unchanged. The
// key is only named, not certified, and there is no transparency log: the receipts, which the hardware attests, contain
// the key.

import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { type Envelope, envelopeJson, readEnvelope } from './dsse.ts'
import { exactly, record, text } from './fields.ts'
import { prettyJson } from './json.ts'

const bundleMediaType = 'application/vnd.dev.sigstore.bundle.v0.3+json'

/** Returns the exact bytes of attestations/bundle.sigstore.json. `envelope` has both signatures. */
export function bundleBytes(envelope: Envelope): Uint8Array {
  const [ed25519] = envelope.signatures
  wellFormed(ed25519 !== undefined, 'bundle: the envelope has no signature')
  return prettyJson({
    mediaType: bundleMediaType,
    verificationMaterial: { publicKey: { hint: ed25519.keyid } },
    dsseEnvelope: envelopeJson({ ...envelope, signatures: [ed25519] }),
  })
}

const bundle = record({
  mediaType: exactly(bundleMediaType),
  verificationMaterial: record({ publicKey: record({ hint: text }) }),
  dsseEnvelope: readEnvelope,
})

/** Reads a bundle. Throws Malformed for any other form. */
export function readBundle(bytes: Uint8Array): { readonly hint: string; readonly envelope: Envelope } {
  const what = 'bundle.sigstore.json'
  const { verificationMaterial, dsseEnvelope: envelope } = bundle(parsedJson(what, bytes), what)
  wellFormed(envelope.signatures.length === 1, `${what}: not exactly one signature`)
  return { hint: verificationMaterial.publicKey.hint, envelope }
}
