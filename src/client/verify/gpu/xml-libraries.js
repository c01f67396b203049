// The two libraries that signed-xml.ts works with. Pure. Their own types bring those of browsers with them, for the
// whole program; xml-libraries.d.ts beside this file names what is used of them instead.

export { DOMParser } from '@xmldom/xmldom'
export { C14nCanonicalization, SignedXml } from 'xml-crypto'
