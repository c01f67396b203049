// Goal: values of a manifest come from the bytes that its signature covers, and from nothing else: no entity, second
// signature, other algorithm or moved element changes what is compared.

import { beforeAll, expect, test } from 'bun:test'
import { sha384 } from '../../../src/attest/hash.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { portableP384 } from '../../../src/attest/nvidia/portable-p384.ts'
import { decodeRim, type Rim, rimBytesMax } from '../../../src/attest/nvidia/rim.ts'
import { isSignedByKeyOf } from '../../../src/attest/nvidia/signature.ts'
import { decodeCertificate } from '../../../src/attest/x509/certificate.ts'
import { toBase64, toHex, utf8 } from '../../../src/base/bytes.ts'
import { readSignedXml } from '../../../src/client/verify/gpu/signed-xml.ts'
import { type Authorities, compositeDeviceId, makeAuthorities } from '../../rigs/attest/gpu/authority.ts'
import {
  canonicalInfo,
  manifestText,
  type Resource,
  signatureOf,
  withSignature,
} from '../../rigs/attest/gpu/manifest.ts'

const value = (byte: number) => new Uint8Array(48).fill(byte)
const resources: Resource[] = [
  { index: 0, values: [value(1), value(2)] },
  { index: 7, values: [value(3)], active: false },
]
const parts = { version: '550.90.07', resources }

let authorities: Authorities
let text = ''
let signature = ''
let whole = ''
beforeAll(async () => {
  authorities = await makeAuthorities('GH100', compositeDeviceId(value(0)))
  text = manifestText(parts)
  signature = await signatureOf({ text }, authorities)
  whole = withSignature(text, signature)
})

/** The manifest that is compared, or why there is none. */
function read(xml: string | Uint8Array): Rim | string {
  try {
    const document = readSignedXml(typeof xml === 'string' ? utf8(xml) : xml)
    const signer = decodeCertificate(document.certificates[0] ?? new Uint8Array(0))
    return decodeRim(document.verify((bytes, signed) => isSignedByKeyOf(signer, bytes, signed, portableP384)))
  } catch (error) {
    if (error instanceof Malformed) return error.message
    throw error
  }
}

const good = { kind: 'driver', version: '550.90.07', product: 'GH100' } as const

test('goal: a signed manifest gives its active measurements, with every alternative', () => {
  const rim = read(whole)
  expect(rim).toMatchObject(good)
  const golden = typeof rim === 'string' ? [] : [...rim.golden]
  expect(golden.map(([index, { values }]) => [index, values.map(toHex)])).toEqual([
    [0, [toHex(value(1)), toHex(value(2))]],
  ])
})

test('goal: the same document in other bytes of one canonical form is the same document', () => {
  const written = whole
    .replace(/><\/ns0:Resource>/g, '/>')
    .replace('active="True" alternatives="2"', "alternatives = '2'\n active='True'")
  expect(read(`<?xml version="1.0" encoding="UTF-8"?>\n${written}\n`)).toMatchObject(good)
})

test('goal: DTDs, entities, comments, CDATA and processing instructions are refused before anything is parsed', () => {
  const bomb = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
  const outside = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
  for (const odd of [
    bomb + whole,
    outside + whole.replace('550.90.07', '&x;'),
    whole.replace('    <ns0:Payload>', '    <!-- x --><ns0:Payload>'),
    whole.replace('    <ns0:Payload>', '    <![CDATA[x]]><ns0:Payload>'),
    whole.replace('    <ns0:Payload>', '    <?x y?><ns0:Payload>'),
    `${whole}<!-- after -->`,
  ]) {
    expect(read(odd)).toBe('XML: a DTD, comment, CDATA section or processing instruction')
  }
  // An entity without a declaration.
  expect(read(whole.replace('550.90.07', '&x;'))).toBeString()
})

test('goal: a value, an element or an attribute that was changed, added, moved or left out is refused', () => {
  const [first = '', second = ''] = whole.match(/<ns0:Resource[^>]*><\/ns0:Resource>/g) ?? []
  for (const odd of [
    whole.replace(toHex(value(1)), toHex(value(9))),
    whole.replace('active="True"', 'active="False"'),
    whole.replace('550.90.07', '550.90.08'),
    whole.replace(first, ''),
    whole.replace(first, first + first),
    whole.replace(`${first}\n        ${second}`, `${second}\n        ${first}`),
    whole.replace('<ns0:Payload>', '<ns0:Payload x="1">'),
    whole.replace('<ns0:Payload>', '<ns0:Payload><x/>'),
    whole.replace('<ns0:Payload>', '<ns0:Payload>text'),
    whole.replace('xmlns:ns0="http://standards.iso.org/iso/19770/-2/2015/schema.xsd"', 'xmlns:ns0="urn:x"'),
  ]) {
    expect(odd).not.toBe(whole)
    expect(read(odd)).toBeString()
  }
})

test('goal: a genuine document wrapped by another one, or beside it, lends it nothing', () => {
  const evil = manifestText({ ...parts, resources: [{ index: 0, values: [value(0x66)] }] })
  const close = '</SoftwareIdentity>'
  for (const odd of [
    // The signature of the one in the other.
    withSignature(evil, signature),
    // The signed document inside, with its signature at its own place, and at the root's end.
    evil.replace(close, `${whole}${close}`),
    withSignature(evil.replace(close, `${text}${close}`), signature),
    // The signed document hidden in the signature.
    withSignature(evil, signature.replace('</ds:Signature>', `<ds:Object>${text}</ds:Object></ds:Signature>`)),
    // Two signatures: the genuine one, and one more.
    withSignature(text, signature + signature),
    withSignature(text, `${signature}<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"></ds:Signature>`),
    whole.replace('<ns0:Payload>', `<ns0:Payload>${signature}`),
    // Two roots.
    evil + whole,
    whole + evil,
  ]) {
    expect(read(odd)).toBeString()
  }
})

test('goal: only the algorithms and the reference of real manifests are taken, although the signer signed others', async () => {
  const info = async (from: string, to: string) => {
    const changed = canonicalInfo.replace(from, to)
    expect(changed).not.toBe(canonicalInfo)
    return read(withSignature(text, await signatureOf({ text, info: changed }, authorities)))
  }
  const form = 'XML: the SignedInfo has another form or other algorithms than RIMs have'
  expect(await info('URI=""', 'URI="#x"')).toBe(form)
  expect(await info(' URI=""', '')).toBe(form)
  expect(await info('ecdsa-sha384', 'ecdsa-sha256')).toBe(form)
  expect(await info('http://www.w3.org/2001/04/xmldsig-more#sha384', 'http://www.w3.org/2000/09/xmldsig#sha1')).toBe(
    form,
  )
  expect(await info('http://www.w3.org/2006/12/xml-c14n11', 'http://www.w3.org/2001/10/xml-exc-c14n#')).toBe(form)
  const xpath = '<ds:Transform Algorithm="http://www.w3.org/TR/1999/REC-xpath-19991116"></ds:Transform>'
  expect(await info('<ds:Transforms>', `<ds:Transforms>${xpath}`)).toBe(form)
  const second = canonicalInfo.slice(canonicalInfo.indexOf('<ds:Reference'))
  const digest = `<ds:DigestValue>${toBase64(sha384(utf8(text)))}</ds:DigestValue></ds:Reference>`
  expect(await info('<ds:Reference', `${second}${digest}<ds:Reference`)).toBe(form)
})

test('goal: a signature over another document, or of another key, is none', async () => {
  const other = manifestText({ ...parts, version: '550.90.08' })
  expect(read(withSignature(text, await signatureOf({ text, signedText: other }, authorities)))).toBe(
    'XML signature: the document has another digest than the signed one',
  )
  const { rim } = authorities
  const wrongKey = await signatureOf({ text, certificates: [rim.l3.der, rim.ca.der] }, authorities)
  expect(read(withSignature(text, wrongKey))).toStartWith('XML signature: invalid signature')
  expect(read(text)).toBe('XML: not exactly one Signature')
  const empty = signature.replace(/<ds:X509Data>.*<\/ds:X509Data>/s, '<ds:X509Data></ds:X509Data>')
  expect(read(withSignature(text, empty))).toBeString()
})

test('goal: size, depth and number of elements have bounds, and bytes that are no XML end as Malformed', () => {
  const deep = `${'<a>'.repeat(5000)}${'</a>'.repeat(5000)}`
  const wide = `<a>${'<b/>'.repeat(5000)}</a>`
  for (const odd of [deep, wide, '', '<', '<a', '<a></b>', 'text', '{}', '<a xml:lang="x"/>', whole.slice(0, -1)]) {
    expect(read(odd)).toBeString()
  }
  expect(read(Uint8Array.of(0xff, 0xfe))).toBe('XML: not UTF-8')
  expect(read(new Uint8Array(rimBytesMax + 1).fill(0x20))).toContain('at most')
  expect(read(whole.replace('<ns0:Payload>', '<ns0:Payload xml:base="x">'))).toBe(
    'XML: an attribute in the namespace of XML',
  )
  // Each element below would carry them all: 250 KiB of them took two seconds to read.
  const declared = Array.from({ length: 33 }, (_, at) => ` xmlns:n${at}="urn:x"`).join('')
  expect(read(whole.replace('<ns0:Payload>', `<ns0:Payload${declared}>`))).toBe(
    'XML: more than 32 declarations of namespaces',
  )
})

test('goal: contents that are signed and odd are refused: indices twice, hex that is none, sizes that differ', async () => {
  const signed = async (change: (text: string) => string) => {
    const changed = change(text)
    expect(changed).not.toBe(text)
    return read(withSignature(changed, await signatureOf({ text: changed }, authorities)))
  }
  expect(await signed(t => t.replace('index="7"', 'index="0"'))).toBe('RIM: measurement 0 twice')
  expect(await signed(t => t.replace('index="0"', 'index="256"'))).toContain('index is not a number')
  expect(await signed(t => t.replace('index="0"', 'index="-1"'))).toContain('index is not a number')
  expect(await signed(t => t.replace('alternatives="2"', 'alternatives="3"'))).toContain('has 2 values, not 3')
  expect(await signed(t => t.replace('size="48"', 'size="32"'))).toContain('not 32 bytes')
  expect(await signed(t => t.replace(toHex(value(1)), 'zz'.repeat(48)))).toContain('not 48 bytes')
  expect(await signed(t => t.replace('active="True"', 'active="true"'))).toContain('neither active nor not')
  expect(await signed(t => t.replace('type="Measurement"', 'type="Other"'))).toContain('else than measurements')
  expect(await signed(t => t.replace('active="True"', 'active="False"'))).toBe('RIM: no measurement in it is active')
  expect(await signed(t => t.replace('550.90.07', '../../x'))).toContain('a version of no driver, VBIOS or switch')
})
