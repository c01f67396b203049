// PEM files as bundlers import them `with { type: 'text' }`.

declare module '*.pem' {
  const text: string
  export = text
}
