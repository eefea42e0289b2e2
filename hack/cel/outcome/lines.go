package outcome

import (
	"bufio"
	"encoding/json"
	"io"
)

// Lines writes one JSON document per line, without Go's escapes for HTML.
type Lines struct {
	buffer  *bufio.Writer
	encoder *json.Encoder
	Count   int
}

// NewLines writes to out until Flush.
func NewLines(out io.Writer) *Lines {
	buffer := bufio.NewWriter(out)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	return &Lines{buffer: buffer, encoder: encoder}
}

// Write appends a line.
func (l *Lines) Write(value any) {
	if err := l.encoder.Encode(value); err != nil {
		panic(err)
	}
	l.Count++
}

// Flush writes what is buffered.
func (l *Lines) Flush() {
	if err := l.buffer.Flush(); err != nil {
		panic(err)
	}
}
