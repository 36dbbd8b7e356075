// Package jsonbody reads the JSON object in a request's body as all of
// CubePod's APIs promise: keys match exactly, unknown ones are ignored, and a
// value of the wrong type is told in the words of its field.
package jsonbody

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Decode reads data, one JSON object, into the struct that v points to. A field
// goes by the name in its json tag. null, for the whole or for a field, leaves
// what is there; inside a map or list of strings it is no string. The errors are fit to be shown to who sent data.
func Decode(data []byte, v any) error {
	// What is no Unicode would become U+FFFD: something else than was sent.
	if !utf8.Valid(data) || loneSurrogate(data) {
		return errors.New("the body is no UTF-8, or has half a surrogate pair in it")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	return object(whole, reflect.ValueOf(v).Elem(), "")
}

// object reads data, which is well-formed, into a struct. Path is where it is in
// the body, "" for the body itself.
func object(data []byte, into reflect.Value, path string) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	switch first, _ := dec.Token(); {
	case first == nil: // null
		return nil
	case first != json.Delim('{') && path == "":
		return errors.New("the body must be a JSON object")
	case first != json.Delim('{'):
		return fmt.Errorf("%s must be an object", path)
	}
	fields := make(map[string]reflect.Value, into.NumField())
	for f, v := range into.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = v
		}
	}
	seen := map[string]bool{}
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		name := key.(string)
		to, ok := fields[name]
		if !ok {
			continue
		}
		where := strings.TrimPrefix(path+"."+name, ".")
		if seen[name] { // which of them counts, programs disagree
			return fmt.Errorf("%s is there more than once", where)
		}
		seen[name] = true
		if err := field(value, to, where); err != nil {
			return err
		}
	}
	return nil
}

func field(data []byte, into reflect.Value, path string) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	if into.Kind() == reflect.Struct && !readsItself(into) {
		return object(data, into, path)
	}
	if json.Unmarshal(data, into.Addr().Interface()) != nil || hasNullString(data, into.Type()) {
		return fmt.Errorf("%s must be %s", path, wanted(into.Type()))
	}
	return nil
}

// hasNullString reports whether data, which was read into a map or a list of
// strings, has a null in it: that is no string, and must not become "".
func hasNullString(data []byte, t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Map:
		var values map[string]*string
		return t.Elem().Kind() == reflect.String && json.Unmarshal(data, &values) == nil && slices.Contains(slices.Collect(maps.Values(values)), nil)
	case reflect.Slice:
		var values []*string
		return t.Elem().Kind() == reflect.String && json.Unmarshal(data, &values) == nil && slices.Contains(values, nil)
	}
	return false
}

// readsItself reports whether v's type has its own form in JSON.
func readsItself(v reflect.Value) bool {
	switch v.Addr().Interface().(type) {
	case json.Unmarshaler, encoding.TextUnmarshaler:
		return true
	}
	return false
}

// wanted describes the values of a type to people.
func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return "a time such as 2026-11-13T16:30:00Z"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			return "an object of strings"
		}
	}
	return "an object"
}
