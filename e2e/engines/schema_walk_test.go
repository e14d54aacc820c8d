//go:build engines

package engines

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// deviations is where an answer, as a library decoded it, differs from the API's
// description, which the library's types are generated from: a required field
// that is not there, a value of another type, a constant that is another one, a
// field that the description does not know. Each is told once, list indexes left
// out, in order.
func deviations(decoded ...any) []string {
	found := map[string]bool{}
	for _, d := range decoded {
		walk(reflect.ValueOf(d), "", found)
	}
	return slices.Sorted(maps.Keys(found))
}

// told is what the libraries keep of each field's JSON.
type told interface {
	Valid() bool
	Raw() string
}

func walk(v reflect.Value, path string, found map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(v.Elem(), path, found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), path+"[]", found)
		}
	case reflect.Struct:
		if as := v.MethodByName("AsAny"); as.IsValid() { // one of several: what it is
			if variant := as.Call(nil)[0]; variant.IsNil() {
				found[path+": none of the known types"] = true
			} else {
				walk(variant, path, found)
			}
			return
		}
		if kept := v.FieldByName("JSON"); kept.IsValid() && kept.Kind() == reflect.Struct {
			walkFields(v, kept, path, found)
		}
	}
}

func walkFields(v, kept reflect.Value, path string, found map[string]bool) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		meta := kept.FieldByName(field.Name)
		if name == "" || name == "-" || !meta.IsValid() {
			continue
		}
		json, ok := meta.Interface().(told)
		if !ok {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		constant := field.Tag.Get("default")
		switch raw := json.Raw(); {
		case raw == "":
			if constant != "" || strings.Contains(field.Tag.Get("api"), "required") {
				found[at+": missing"] = true
			}
		case raw == "null":
		case constant != "" && raw != `"`+constant+`"`:
			found[at+": "+raw+", not "+constant] = true
		case !json.Valid():
			found[at+": of another type"] = true
		default:
			walk(v.Field(i), at, found)
		}
	}
	if extra := kept.FieldByName("ExtraFields"); extra.IsValid() {
		for _, name := range extra.MapKeys() {
			found[strings.TrimPrefix(path+"."+name.String(), ".")+": unknown"] = true
		}
	}
}
