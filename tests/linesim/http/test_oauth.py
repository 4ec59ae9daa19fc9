"""Channel access tokens of all kinds: issued, verified, used, ended and revoked."""

import base64
import json

import pytest
import requests
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

import linesim
from tests.line_openapi import check_answer

DAY = 24 * 60 * 60
KEY = rsa.generate_private_key(65_537, 2_048)
JWT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value):
    return base64url(value.to_bytes((value.bit_length() + 7) // 8))


def jwk(key=KEY, **more):
    public = key.public_key().public_numbers()
    half = {
        "kty": "RSA",
        "alg": "RS256",
        "use": "sig",
        "n": number(public.n),
        "e": number(public.e),
    }
    return {name: value for name, value in (half | more).items() if value is not None}


def register(sim, key=None):
    return requests.post(f"{sim.url}/sim/keys", json=key or jwk(), timeout=10)


def assertion(sim, kid, *, key=KEY, alg="RS256", **claims):
    told = {
        "iss": sim.channel_id,
        "sub": sim.channel_id,
        "aud": "https://api.line.me/",
        "exp": sim.platform.clock.time() + 1_800,
        "token_exp": 30 * DAY,
    }
    parts = ({"alg": alg, "typ": "JWT", "kid": kid}, told | claims)
    signed = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{base64url(signature)}"


class Oauth:
    """Calls without a bearer token; each answer of a call that is taken is of LINE's form."""

    def __init__(self, sim):
        self.sim = sim
        self.client = {"client_id": sim.channel_id, "client_secret": sim.secret}
        self.kid = register(sim).json()["kid"]

    def post(self, path, **form):
        return self._told("POST", path, requests.post(self.sim.url + path, form, timeout=10))

    def get(self, path, **query):
        return self._told("GET", path, requests.get(self.sim.url + path, query, timeout=10))

    def _told(self, method, path, answer):
        if answer.content:
            told = answer.status_code, answer.json()
            check_answer(method, path, *told, file="channel-access-token")
        return answer

    def by_jwt(self, path="/oauth2/v2.1/token", jwt=None, **claims):
        jwt = jwt or assertion(self.sim, self.kid, **claims)
        sent = {"client_assertion_type": JWT, "client_assertion": jwt}
        return self.post(path, grant_type="client_credentials", **sent)

    def kids(self):
        sent = {"client_assertion_type": JWT, "client_assertion": assertion(self.sim, self.kid)}
        return self.get("/oauth2/v2.1/tokens/kid", **sent).json()["kids"]

    def issue(self, path="/v2/oauth/accessToken"):
        return self.post(path, grant_type="client_credentials", **self.client)

    def opens(self, token):
        headers = {"authorization": f"Bearer {token}"}
        answer = requests.get(f"{self.sim.url}/v2/bot/info", headers=headers, timeout=10)
        assert answer.ok or (answer.status_code == 401 and "invalid token" in answer.text)
        return answer.ok


@pytest.fixture
def oauth(sim):
    return Oauth(sim)


def refusal(answer):
    told = answer.json()
    return answer.status_code, told.get("error"), told.get("error_description")


def invalid(description, error="invalid_request"):
    return 400, error, description


def test_a_short_lived_token_ends_after_30_days_when_revoked_and_as_the_31st_is_issued(sim, oauth):
    first, second = oauth.issue().json(), oauth.issue().json()["access_token"]
    assert (first["token_type"], first["expires_in"]) == ("Bearer", 30 * DAY)
    token = first["access_token"]
    assert oauth.opens(token)
    told = oauth.post("/v2/oauth/verify", access_token=token).json()
    assert (told["client_id"], told["expires_in"]) == (sim.channel_id, 30 * DAY)
    assert oauth.post("/v2/oauth/revoke", access_token=token).content == b""
    assert not oauth.opens(token)
    answer = oauth.post("/v2/oauth/verify", access_token=token)
    assert refusal(answer) == invalid("access_token invalid")
    for _ in range(29):
        assert oauth.opens(second)
        newest = oauth.issue().json()["access_token"]
    oauth.issue()
    assert not oauth.opens(second)
    sim.advance(30 * DAY)
    assert not oauth.opens(newest)


def test_the_token_of_the_start_is_long_lived_until_it_is_revoked(sim, oauth):
    sim.advance(366 * DAY)
    assert oauth.post("/v2/oauth/verify", access_token=sim.token).json()["expires_in"] > 366 * DAY
    assert oauth.opens(sim.token)
    assert oauth.post("/v2/oauth/revoke", access_token=sim.token).ok
    assert not oauth.opens(sim.token)


def test_a_stateless_token_lives_15_minutes_and_cannot_be_revoked(sim, oauth):
    both = oauth.issue("/oauth2/v3/token").json(), oauth.by_jwt("/oauth2/v3/token").json()
    for told in both:
        token = told["access_token"]
        assert told["expires_in"] == 900
        oauth.post("/v2/oauth/revoke", access_token=token)
        oauth.post("/oauth2/v2.1/revoke", access_token=token, **oauth.client)
        assert oauth.opens(token)
        parts = token.split(".")
        assert not oauth.opens(".".join([*parts[:2], f"{int(parts[2], 16) + 900:x}", parts[3]]))
    sim.advance(900)
    assert not oauth.opens(token)


def test_thirty_tokens_by_jwt_live_as_long_as_they_ask_for_and_are_known_by_their_key_ids(
    sim, oauth
):
    issued = [oauth.by_jwt(token_exp=60).json()]
    issued += [oauth.by_jwt().json() for _ in range(29)]
    assert [each["expires_in"] for each in issued[:2]] == [60, 30 * DAY]
    assert oauth.kids() == [each["key_id"] for each in issued]
    refused = oauth.by_jwt()
    assert refused.status_code == 400
    assert (
        refused.json()["message"] == "The maximum number of access tokens has already been issued"
    )
    first, second = (each["access_token"] for each in issued[:2])
    told = oauth.get("/oauth2/v2.1/verify", access_token=first).json()
    assert (told["client_id"], told["expires_in"]) == (sim.channel_id, 60)
    sim.advance(60)
    answer = oauth.get("/oauth2/v2.1/verify", access_token=first)
    assert refusal(answer) == invalid("The access token expired")
    assert not oauth.opens(first)
    assert oauth.by_jwt().ok
    assert oauth.post("/oauth2/v2.1/revoke", access_token=second, **oauth.client).content == b""
    assert not oauth.opens(second)
    assert issued[1]["key_id"] not in oauth.kids()
    assert oauth.opens(issued[2]["access_token"])


OTHER = rsa.generate_private_key(65_537, 2_048)


@pytest.mark.parametrize(
    ("claims", "wrong"),
    [
        ({"key": OTHER}, "Invalid signature"),
        ({"alg": "none"}, "Invalid signature"),
        ({"iss": "1234567890"}, "iss and clientId of key do not match"),
        ({"sub": "1234567890"}, "Invalid sub"),
        ({"aud": "https://api.line.me"}, "Invalid aud"),
        ({"exp": 1_800_000_000}, "Invalid exp"),
        ({"exp": 1_800_001_801}, "Invalid exp"),
        ({"exp": "soon"}, "Invalid JWT"),
        ({"jwt": "a.b.c"}, "Invalid JWT"),
        ({"jwt": "e30.e30.e30"}, None),
        ({"token_exp": 30 * DAY + 1}, "Invalid token_exp"),
        ({"token_exp": "60"}, "Invalid token_exp"),
    ],
)
def test_an_assertion_that_is_not_right_is_refused(oauth, claims, wrong):
    answer = oauth.by_jwt(**claims)
    if wrong is None:
        assert answer.status_code == 404
        assert answer.json() == {"message": "Cannot find channel key that satisfies the conditions"}
    else:
        assert refusal(answer) == invalid(wrong, "invalid_client")


def test_what_is_no_right_form_is_refused_in_lines_words(sim, oauth):
    wrong_secret = oauth.client | {"client_secret": "x"}
    grant = {"grant_type": "client_credentials"}
    missed = invalid("some parameters missed or invalid")
    no_secret = invalid("invalid client_secret", "invalid_client")
    cases = [
        (missed, oauth.post("/v2/oauth/accessToken", **oauth.client)),
        (missed, oauth.post("/v2/oauth/accessToken", grant_type="x", **oauth.client)),
        (no_secret, oauth.post("/v2/oauth/accessToken", **grant, **wrong_secret)),
        (
            invalid("Invalid 'client_credentials'."),
            oauth.post("/oauth2/v3/token", **grant, **wrong_secret),
        ),
        (
            invalid("access_token in invalid format"),
            oauth.post("/v2/oauth/verify", access_token="あ"),
        ),
        (invalid(None), oauth.post("/v2/oauth/revoke", access_token="あ")),
        (invalid("The access token not JWS"), oauth.get("/oauth2/v2.1/verify", access_token="x")),
        (
            invalid("The access token malformed"),
            oauth.get("/oauth2/v2.1/verify", access_token="a.b.c"),
        ),
        (no_secret, oauth.post("/oauth2/v2.1/revoke", access_token="a.b.c", **wrong_secret)),
    ]
    for right, answer in cases:
        assert refusal(answer) == right
    as_json = requests.post(f"{sim.url}/v2/oauth/accessToken", json=grant, timeout=10)
    assert as_json.status_code == 415


@pytest.mark.parametrize(
    "wrong",
    [
        {"kid": "1"},
        {"use": None},
        {"key_ops": ["verify"]},
        {"n": number(2**1024 - 1)},
        {"alg": "x"},
    ],
)
def test_a_key_that_lines_console_refuses_is_refused(sim, wrong):
    assert register(sim, jwk(**wrong)).status_code == 422
    assert register(sim, jwk(use=None, key_ops=["verify"])).ok


def test_the_channel_can_be_given():
    with linesim.running(channel_id="1234567890") as sim:
        assert Oauth(sim).issue().ok
