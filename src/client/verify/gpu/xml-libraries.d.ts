// The features that signed-xml.ts uses of @xmldom/xmldom 0.8 and xml-crypto 6.3.

export type XmlNode = {
  readonly nodeType: number
  readonly firstChild: XmlNode | null
  readonly nextSibling: XmlNode | null
  readonly parentNode: XmlNode | null
  readonly textContent: string | null
}

export type XmlAttribute = {
  readonly name: string
  readonly localName: string
  readonly namespaceURI: string | null
  readonly value: string
}

export type DomElement = XmlNode & {
  readonly localName: string
  readonly namespaceURI: string | null
  readonly attributes: { readonly length: number; item(at: number): XmlAttribute | null }
}

export type XmlDocument = XmlNode & { readonly documentElement: DomElement | null }

type Handler = (message: string) => void

export class DOMParser {
  constructor(options: {
    readonly errorHandler: { readonly warning: Handler; readonly error: Handler; readonly fatalError: Handler }
  })
  parseFromString(text: string, mimeType: 'text/xml'): XmlDocument | undefined
}

export class C14nCanonicalization {
  getAlgorithmName(): string
}

type Transform = new () => { getAlgorithmName(): string }
type HashAlgorithm = new () => { getAlgorithmName(): string; getHash(xml: string): string }
type SignatureAlgorithm = new () => {
  getAlgorithmName(): string
  verifySignature(material: string, key: unknown, signature: string): boolean
}

export class SignedXml {
  constructor(options: { readonly publicCert: string; readonly getCertFromKeyInfo: () => null })
  CanonicalizationAlgorithms: Record<string, Transform | undefined>
  HashAlgorithms: Record<string, HashAlgorithm>
  SignatureAlgorithms: Record<string, SignatureAlgorithm>
  loadSignature(signature: DomElement): void
  /** Returns false if a digest differs. Throws for a wrong signature or an unsupported form. */
  checkSignature(xml: string): boolean
  /** Canonical XML of each reference, after checkSignature has returned true. */
  getSignedReferences(): string[]
}
