// Package configs reads configuration files strictly and holds the annotated
// examples.
//
// A file is YAML, read into a message of iop.config.v1 whose field names are
// the keys. Reading has three steps, and all of their findings are reported
// together, each with file, line and column ([Problems]):
//
//  1. the YAML nodes: limits, duplicate keys, unknown keys with the nearest
//     right one, wrong types; a null counts as omitted, aliases are expanded
//     within a budget;
//  2. protoyaml sets the fields of the message;
//  3. protovalidate judges the rules that the message itself carries.
//
// Rules that look at more than one message belong to the reader of the file
// (edge/config, node/config); a [Document] tells them where a value stands.
// [Describe] and [Diff] print messages and what differs between two of them,
// without secrets.
//
// The package knows no meaning of any key. It does not support map, enum, bytes
// and 32-bit float fields, which configuration messages do not use.
package configs
