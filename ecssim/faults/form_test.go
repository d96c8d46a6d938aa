package faults

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

func TestFaultKeepsItsFieldsInJSON(t *testing.T) {
	f := Fault{
		ID: 1, Action: "CreateDisk", Params: map[string]string{"ZoneId": "h$"}, Agent: "driver", Skip: 2, Count: 3, Percent: 4, From: time.Second, For: time.Minute,
		Do: ErrorAfter, Status: 503, Code: "ServiceUnavailable", Message: "no", DelayBefore: 5 * time.Millisecond, DelayAfter: 6 * time.Millisecond,
		Lag: 7 * time.Second, Hide: []string{"d-1"}, Skew: -8 * time.Minute, Seen: 9, Hit: 10,
	}
	for i, v := 0, reflect.ValueOf(f); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the test leaves %s out", v.Type().Field(i).Name)
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var got Fault
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("%s is read as %+v, error %v", text, got, err)
	}
	var wrong *config.Error
	for _, text := range []string{`{"From":"1s","what":1}`, `{"for":"1"}`, `{"skew":"20"}`} {
		if err := json.Unmarshal([]byte(text), &got); !errors.As(err, &wrong) {
			t.Errorf("%s: error %v", text, err)
		}
	}
}
