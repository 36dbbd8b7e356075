package jsonbody_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/jsonbody"
)

type body struct {
	Command string                     `json:"command"`
	Count   *int64                     `json:"count,omitempty"`
	UID     *uint32                    `json:"uid"`
	On      bool                       `json:"on"`
	Envs    map[string]string          `json:"envs"`
	Names   []string                   `json:"names"`
	Rules   map[string]json.RawMessage `json:"rules"`
	Size    *struct {
		Cols uint16 `json:"cols"`
	} `json:"size"`
	At     *time.Time `json:"at"`
	hidden string
}

func TestDecode(t *testing.T) {
	n, uid, at := int64(5), uint32(0), time.Date(2026, 11, 13, 16, 30, 0, 0, time.UTC)
	for in, want := range map[string]body{
		`null`:                                     {},
		`{}`:                                       {},
		`{"command":"a"}`:                          {Command: "a"},
		`{"Command":"a","COMMAND":1}`:              {}, // another key
		`{"x":1,"x":"a"}`:                          {}, // nobody reads it
		`{"command":null,"uid":null}`:              {},
		`{"envs":null,"names":null}`:               {},
		`{"envs":{},"names":["a"]}`:                {Envs: map[string]string{}, Names: []string{"a"}},
		`{"c\u006fmmand":"\ud83d\ude00"}`:          {Command: "😀"},
		`{"hidden":"x","":1,"more":{"command":1}}`: {},
		`{"count":5,"uid":0,"on":true,"envs":{"A":"b"}}`: {Count: &n, UID: &uid, On: true, Envs: map[string]string{"A": "b"}},
		`{"at":"2026-11-13T16:30:00Z"}`:                  {At: &at},
		`{"rules":{"a":[1]}}`:                            {Rules: map[string]json.RawMessage{"a": json.RawMessage("[1]")}},
	} {
		var got body
		if err := jsonbody.Decode([]byte(in), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", in, got, err, want)
		}
	}
	var got body
	if err := jsonbody.Decode([]byte(`{"size":{"cols":80,"Cols":90}}`), &got); err != nil || got.Size.Cols != 80 || got.hidden != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``:                       "no JSON",
		`{"command":"a"`:         "no JSON",
		`{"command":"a"} {}`:     "no JSON",
		`[]`:                     "the body must be a JSON object",
		`"command"`:              "the body must be a JSON object",
		`{"on":1,"on":true}`:     "on must be true or false",
		`{"on":true,"on":1}`:     "on is there more than once",
		`{"command":7}`:          "command must be a string",
		`{"count":1.5}`:          "count must be a whole number",
		`{"count":"1"}`:          "count must be a whole number",
		`{"count":1e99}`:         "count must be a whole number",
		`{"uid":-1}`:             "uid must be a whole number from 0 to 4294967295",
		`{"on":"yes"}`:           "on must be true or false",
		`{"envs":[]}`:            "envs must be an object of strings",
		`{"envs":{"A":1}}`:       "envs must be an object of strings",
		`{"envs":{"A":null}}`:    "envs must be an object of strings",
		`{"names":["a",null]}`:   "names must be a list",
		`{"rules":1}`:            "rules must be an object",
		`{"size":[]}`:            "size must be an object",
		`{"size":{"cols":7e9}}`:  "size.cols must be a whole number from 0 to 65535",
		`{"at":"yesterday"}`:     "at must be a time such as",
		`{"at":7}`:               "at must be a time such as",
		"{\"command\":\"\xff\"}": "no UTF-8",
		`{"command":"\ud83d"}`:   "surrogate",
	} {
		var got body
		err := jsonbody.Decode([]byte(in), &got)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "json:") || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: got %v, want %q", in, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"command":"a","count":1,"size":{"cols":1},"envs":{"A":"b"}}`))
	f.Add([]byte(`{"command":"\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, again body
		if jsonbody.Decode(data, &got) != nil {
			return
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := jsonbody.Decode(text, &again); err != nil {
			t.Fatalf("%q became %s: %v", data, text, err)
		}
		if back, _ := json.Marshal(again); string(back) != string(text) {
			t.Errorf("%q became %s and then %s", data, text, back)
		}
	})
}
