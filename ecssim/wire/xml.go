package wire

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"maps"
	"slices"
)

const xmlType = "text/xml;charset=utf-8"

// encodeXML writes a reply that is a JSON object as an XML document: a field is
// an element, and a list is one element for each of its entries. ECS answers
// so if a request has no Format ("Response parameters", ECS's API reference).
func encodeXML(root string, object []byte) []byte {
	var fields any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber() // digits stay as they are
	if err := d.Decode(&fields); err != nil {
		panic("wire: a reply that is no JSON: " + err.Error()) // EncodeJSON made it
	}
	text := bytes.NewBufferString("<?xml version='1.0' encoding='UTF-8'?>")
	writeElement(text, root, fields)
	return text.Bytes()
}

// writeElement writes a value under a name. The fields of an object come in
// the order of their names.
func writeElement(text *bytes.Buffer, name string, value any) {
	if list, is := value.([]any); is {
		for _, entry := range list {
			writeElement(text, name, entry)
		}
		return
	}
	text.WriteString("<" + name + ">")
	switch v := value.(type) {
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(v)) {
			writeElement(text, field, v[field])
		}
	case string:
		_ = xml.EscapeText(text, []byte(v)) // a buffer takes everything
	case json.Number:
		text.WriteString(v.String())
	case bool:
		if v {
			text.WriteString("true")
		} else {
			text.WriteString("false")
		}
	}
	text.WriteString("</" + name + ">")
}
