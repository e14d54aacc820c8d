// Package gguf writes and inspects model files in GGUF version 3, the format
// that llama.cpp and Ollama load.
//
// It owns the layout of the file: header, metadata, tensor directory, aligned
// tensor data. It must not know what any key or tensor means to an engine; that
// is the business of the package that builds a model.
package gguf
