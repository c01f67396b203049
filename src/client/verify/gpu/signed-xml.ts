// XML with an enveloped signature, as in reference integrity manifests, with xml-crypto over @xmldom/xmldom. Pure;
// throws Malformed. XML Signature 1.1; Canonical XML 1.1.
//
// Only certificates are read from the document itself. After verification, the canonical bytes whose digest is signed
// are parsed again, and all values come from them. Before verification, the form is restricted to NVIDIA's: no DTD,
// comment, CDATA section or processing instruction, one signature at the end of the root, one reference to the whole
// document, and three algorithms.

import { sha384 } from '../../../attest/hash.ts'
import { Malformed, wellFormed } from '../../../attest/malformed.ts'
import { rimBytesMax, type SignedXml, type XmlElement } from '../../../attest/nvidia/rim.ts'
import { fromBase64, fromUtf8, toBase64, utf8 } from '../../../base/bytes.ts'
import { messageOf } from '../../../base/fault.ts'
import {
  C14nCanonicalization,
  DOMParser,
  type DomElement,
  type XmlAttribute,
  SignedXml as XmlCrypto,
  type XmlDocument,
  type XmlNode,
} from './xml-libraries.js'

const depthMax = 8
const elementsMax = 1024
/** Limit on namespace declarations, which readers copy for each element below. Real manifests have six. */
const declarationsMax = 32

const DSIG = 'http://www.w3.org/2000/09/xmldsig#'
const XMLNS = 'http://www.w3.org/2000/xmlns/'
const ALGORITHMS = {
  canonical: 'http://www.w3.org/2006/12/xml-c14n11',
  enveloped: 'http://www.w3.org/2000/09/xmldsig#enveloped-signature',
  digest: 'http://www.w3.org/2001/04/xmldsig-more#sha384',
  signature: 'http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384',
} as const

/** Names and algorithms of a signature, in order. Text is omitted. */
const SIGNED_INFO = `CanonicalizationMethod ${ALGORITHMS.canonical}
SignatureMethod ${ALGORITHMS.signature}
Reference URI=""
 Transforms
  Transform ${ALGORITHMS.enveloped}
  Transform ${ALGORITHMS.canonical}
 DigestMethod ${ALGORITHMS.digest}
 DigestValue`

export function readSignedXml(bytes: Uint8Array): SignedXml {
  wellFormed(bytes.length <= rimBytesMax, `XML: ${bytes.length} bytes, at most ${rimBytesMax}`)
  const text = decodeText(bytes)
  const root = parse(text)
  const signatures = elementsOf(root).filter(element => element.localName === 'Signature')
  const [signature, ...more] = signatures
  wellFormed(signature !== undefined && more.length === 0, 'XML: not exactly one Signature')
  wellFormed(signature.namespaceURI === DSIG && signature.parentNode === root, 'XML: the Signature is not of the root')
  const [info, value, key, ...odd] = childrenOf(signature)
  wellFormed(
    info?.localName === 'SignedInfo' && value?.localName === 'SignatureValue' && key?.localName === 'KeyInfo',
    'XML: the Signature is not SignedInfo, SignatureValue and KeyInfo',
  )
  wellFormed(odd.length === 0, 'XML: something else in the Signature')
  wellFormed(formOf(info) === SIGNED_INFO, 'XML: the SignedInfo has another form or other algorithms than RIMs have')
  return {
    certificates: certificatesOf(key),
    verify: isSigned => contentsOf(signedText(text, signature, isSigned)),
  }
}

type IsSigned = Parameters<SignedXml['verify']>[0]

/** Returns the canonical document without its signature, whose digest is signed. */
function signedText(text: string, signature: DomElement, isSigned: IsSigned): string {
  const check = new XmlCrypto({ publicCert: 'unused', getCertFromKeyInfo: () => null })
  check.CanonicalizationAlgorithms = {
    [ALGORITHMS.canonical]: Canonical,
    [ALGORITHMS.enveloped]: check.CanonicalizationAlgorithms[ALGORITHMS.enveloped],
  }
  check.HashAlgorithms = { [ALGORITHMS.digest]: Digest }
  check.SignatureAlgorithms = { [ALGORITHMS.signature]: signatureBy(isSigned) }
  let isGood = false
  try {
    check.loadSignature(signature)
    isGood = check.checkSignature(text)
  } catch (cause) {
    throw new Malformed(`XML signature: ${messageOf(cause).slice(0, 128)}`, { cause })
  }
  wellFormed(isGood, 'XML signature: the document has another digest than the signed one')
  const [signed, ...more] = check.getSignedReferences()
  wellFormed(signed !== undefined && more.length === 0, 'XML signature: not exactly one document is signed')
  return signed
}

/**
 * For a whole document, or an element whose ancestors have no attributes in the namespace of XML, Canonical XML 1.1 is
 * the same as 1.0: they differ in which of these attributes descendants inherit (Canonical XML 1.1, section 2.4), and
 * parse() rejects such attributes.
 */
class Canonical extends C14nCanonicalization {
  override getAlgorithmName() {
    return ALGORITHMS.canonical
  }
}

class Digest {
  getAlgorithmName = () => ALGORITHMS.digest
  getHash = (xml: string) => toBase64(sha384(utf8(xml)))
}

function signatureBy(isSigned: IsSigned) {
  return class {
    getAlgorithmName = () => ALGORITHMS.signature
    verifySignature = (material: string, _key: unknown, signature: string): boolean => {
      const bytes = fromBase64(signature.replace(/\s+/g, ''))
      return bytes !== null && isSigned(utf8(material), bytes)
    }
  }
}

function decodeText(bytes: Uint8Array): string {
  try {
    return fromUtf8(bytes)
  } catch (cause) {
    throw new Malformed('XML: not UTF-8', { cause })
  }
}

/**
 * Parses a document without DTD, comment, CDATA section and processing instruction, of limited depth and size. Returns
 * its root.
 */
function parse(text: string): DomElement {
  const declaration = /^<\?xml version="1\.0"(?: encoding="(?:UTF|utf)-8")?(?: standalone="(?:yes|no)")?\?>\s*/
  const body = text.replace(declaration, '')
  // "<" begins markup everywhere, so no parser can find one of these elsewhere.
  wellFormed(!/<[!?]/.test(body), 'XML: a DTD, comment, CDATA section or processing instruction')
  wellFormed(!hasControls(body), 'XML: a control character')
  const declarations = body.split('xmlns', declarationsMax + 2).length - 1
  wellFormed(declarations <= declarationsMax, `XML: more than ${declarationsMax} declarations of namespaces`)
  const refuse = (message: string) => {
    throw new Malformed(`XML: ${message.slice(0, 128)}`)
  }
  const parser = new DOMParser({ errorHandler: { warning: refuse, error: refuse, fatalError: refuse } })
  const document = parsedBy(parser, body)
  const root = document?.documentElement
  wellFormed(document !== undefined && root != null && childrenOf(document).length === 1, 'XML: not exactly one root')
  const elements = elementsOf(root)
  wellFormed(elements.length <= elementsMax, `XML: more than ${elementsMax} elements`)
  const odd = elements.some(element => attributesOf(element).some(({ name }) => name.startsWith('xml:')))
  wellFormed(!odd, 'XML: an attribute in the namespace of XML')
  return root
}

/** Finds control characters (XML 1.0, section 2.2). The parser treats a zero byte as white space. */
function hasControls(text: string): boolean {
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code < 0x20 && code !== 0x09 && code !== 0x0a && code !== 0x0d) return true
  }
  return false
}

function parsedBy(parser: DOMParser, text: string): XmlDocument | undefined {
  try {
    return parser.parseFromString(text, 'text/xml')
  } catch (cause) {
    throw cause instanceof Malformed ? cause : new Malformed(`XML: ${messageOf(cause).slice(0, 128)}`, { cause })
  }
}

/** Returns the element and all its descendants, in order. Throws Malformed if they are nested too deeply. */
function elementsOf(root: DomElement): readonly DomElement[] {
  const found: DomElement[] = []
  let level: readonly DomElement[] = [root]
  for (let depth = 0; level.length > 0; depth += 1) {
    wellFormed(depth < depthMax && found.length <= elementsMax, 'XML: too many elements, or nested too deep')
    found.push(...level)
    level = level.flatMap(childrenOf)
  }
  return found
}

function childrenOf(parent: XmlNode): DomElement[] {
  const children: DomElement[] = []
  for (let node = parent.firstChild; node !== null; node = node.nextSibling) {
    if (node.nodeType === 1) children.push(node as DomElement)
  }
  return children
}

function attributesOf({ attributes }: DomElement): XmlAttribute[] {
  return Array.from({ length: attributes.length }, (_, at) => attributes.item(at)).filter(found => found !== null)
}

/** Returns the elements of XML Signature below this one, each with its algorithm, indented by depth. */
function formOf(parent: DomElement, indent = ''): string {
  const lines = childrenOf(parent).flatMap(child => {
    const attributes = attributesOf(child).filter(({ namespaceURI }) => namespaceURI !== XMLNS)
    const said = attributes.map(({ name, value }) => (name === 'Algorithm' ? ` ${value}` : ` ${name}="${value}"`))
    const name = child.namespaceURI === DSIG ? child.localName : `{${child.namespaceURI}}${child.localName}`
    const below = formOf(child, `${indent} `)
    return [`${indent}${name}${said.join('')}`, ...(below === '' ? [] : [below])]
  })
  return lines.join('\n')
}

function certificatesOf(key: DomElement): readonly Uint8Array[] {
  const [data, ...more] = childrenOf(key)
  wellFormed(data?.localName === 'X509Data' && more.length === 0, 'XML: KeyInfo is not X509Data')
  return childrenOf(data).map(element => {
    const der = fromBase64((element.textContent ?? '').replace(/\s+/g, ''))
    wellFormed(
      element.localName === 'X509Certificate' && der !== null,
      'XML: X509Data has something else than certificates',
    )
    return der
  })
}

/** Returns the elements and attributes of the signed bytes. */
function contentsOf(signed: string): XmlElement {
  const read = (element: DomElement): XmlElement => ({
    namespace: element.namespaceURI ?? '',
    name: element.localName ?? '',
    attributes: new Map(
      attributesOf(element)
        .filter(({ namespaceURI }) => namespaceURI !== XMLNS)
        .map(({ namespaceURI, localName, value }) => [
          namespaceURI ? `{${namespaceURI}}${localName}` : localName,
          value,
        ]),
    ),
    children: childrenOf(element).map(read),
  })
  return read(parse(signed))
}
