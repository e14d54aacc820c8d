// Package schema turns the messages of configuration files into JSON Schemas,
// with which editors complete keys, show what they mean and mark mistakes.
//
// It owns the translation: types, and the rules that messages carry (ranges,
// closed sets, patterns, what is required); descriptions are the comments of the
// proto file. What looks at more than one place, such as references, is beyond a
// schema and stays with the readers of the files. A null is allowed wherever a
// value may be left out, as the loader has it.
//
// The schemas beside it (edge.schema.json, node.schema.json) are written by
// `make generate`. It knows no message by name.
package schema
