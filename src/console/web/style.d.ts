// Styles that a script imports. The bundler combines them into one file.

declare module '*.css' {}
