package work

import (
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/backup/object"
	"ankole.storage/backup/target"
)

func asItIs(path string) string { return path }

func TestOpen(t *testing.T) {
	all := target.Environ([]string{"AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=a=b", "PATH=/bin",
		"VIRTUAL_HOSTED_STYLE=true",
		"AWS_ENDPOINTS=https://minio:9000", "AWS_CERT"})
	if len(all) != 4 || all["AWS_SECRET_ACCESS_KEY"] != "a=b" {
		t.Errorf("the environment has %v", all)
	}
	place, err := target.Parse("s3://b@r/p/q")
	if err != nil {
		t.Fatal(err)
	}
	config, err := s3Config(place, all)
	if err != nil || config.Prefix != "p/q/" || !config.VirtualHosted || config.Endpoint != "https://minio:9000" ||
		config.SecretAccessKey != "a=b" || config.Region != "r" || config.Bucket != "b" {
		t.Errorf("%+v, %v", config, err)
	}
	for _, c := range []target.Credentials{{target.KeyAccessKeyID: "id"}, {target.KeySecretAccessKey: "s"},
		{target.KeyAccessKeyID: "i", target.KeySecretAccessKey: "s", target.KeyVirtualHosted: "maybe"},
		{target.KeyAccessKeyID: "i", target.KeySecretAccessKey: "s", target.KeyEndpoints: "minio"},
		{target.KeyAccessKeyID: "i", target.KeySecretAccessKey: "s", target.KeyCert: "none"}} {
		if _, err := open(t.Context(), place, c, asItIs); err == nil {
			t.Errorf("%v opens a bucket", c)
		}
	}
	if place, err = target.Parse("azblob://c@core.windows.net/p/q/"); err != nil {
		t.Fatal(err)
	}
	azure := azureConfig(place, target.Credentials{target.KeyAzureAccount: "a", target.KeyAzureKey: "a2V5\n"})
	if azure.Container != "c" || azure.Suffix != "core.windows.net" || azure.Prefix != "p/q/" || azure.Account != "a" ||
		azure.Key != "a2V5" {
		t.Errorf("%+v", azure)
	}
	for url, says := range map[string]string{"azblob://c@h/p": "AZBLOB_ACCOUNT_NAME",
		// This process has the mounts of whoever started it.
		"nfs://s:/p": "no mount namespace of its own", "cifs://s/p": "no mount namespace of its own"} {
		place, err := target.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open(t.Context(), place, all, asItIs); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", url, err)
		}
	}
	place, err = target.Parse("vfs://" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t.Context(), place, nil, asItIs); err != nil {
		t.Error(err)
	}
}

// TestNothingSecretIsTold opens targets with all sorts of credentials and options that are secret.
func TestNothingSecretIsTold(t *testing.T) {
	const secret = "hunter2"
	rapid.Check(t, func(t *rapid.T) {
		url := rapid.SampledFrom([]string{"s3://" + secret + ":" + secret + "@r/p", "s3://u:" + secret + "@%zz/p",
			"cifs://s/p?cifsOptions=password%3D" + secret, "cifs://s/p?cifsOptions=password=" + secret + "%zz",
			"nfs://s:/p?nfsOptions=" + secret + "&other=" + secret, "azblob://c@h/p", "s3://b@r/p",
			"vfs:///nowhere"}).Draw(t, "url")
		c := target.Credentials{}
		for _, k := range target.Keys {
			c[k] = rapid.SampledFrom([]string{"", secret, "http://" + secret, "-----BEGIN CERTIFICATE-----\n" + secret,
				secret + "\x00"}).Draw(t, k)
		}
		told := func(text string) {
			if strings.Contains(text, secret) {
				t.Fatalf("told: %s", text)
			}
		}
		place, err := target.Parse(url)
		if err == nil {
			told(place.String())
			var store object.Store
			if store, err = open(context.Background(), place, c, asItIs); err == nil {
				told(store.String())
			}
		}
		if err != nil {
			told(err.Error())
		}
		if _, err := target.ParseObject(url); err != nil {
			told(err.Error())
		}
	})
}
