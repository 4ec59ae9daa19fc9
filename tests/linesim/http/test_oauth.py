"""Channel access tokens of all kinds: issued, verified, used, ended and revoked."""

import base64
import json

import pytest
import requests
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.line_openapi import check_answer

DAY = 24 * 60 * 60
KEY, OTHER = (rsa.generate_private_key(65_537, 2_048) for _ in range(2))
JWT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SHORT, STATELESS, BY_JWT = "/v2/oauth/accessToken", "/oauth2/v3/token", "/oauth2/v2.1/token"
GRANT = {"grant_type": "client_credentials"}


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk(**more):
    public = KEY.public_key().public_numbers()
    told = {"kty": "RSA", "alg": "RS256", "use": "sig", "e": "AQAB"}
    told |= {"n": base64url(public.n.to_bytes(256))} | more
    return {name: value for name, value in told.items() if value is not None}


def register(sim, **more):
    return requests.post(f"{sim.url}/sim/keys", json=jwk(**more), timeout=10)


def assertion(sim, kid, *, key=KEY, alg="RS256", **claims):
    who = {"iss": sim.channel_id, "sub": sim.channel_id, "aud": "https://api.line.me/"}
    times = {"exp": sim.platform.clock.time() + 1_800, "token_exp": 30 * DAY}
    parts = {"alg": alg, "typ": "JWT", "kid": kid}, who | times | claims
    signed = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{base64url(signature)}"


class Oauth:
    """Calls without a bearer token; each answer is of the form that LINE describes."""

    def __init__(self, sim):
        self.sim = sim
        self.client = {"client_id": sim.channel_id, "client_secret": sim.secret}
        self.kid = register(sim).json()["kid"]

    def __call__(self, path, method="POST", **sent):
        sent = {"data" if method == "POST" else "params": sent}
        answer = requests.request(method, self.sim.url + path, **sent, timeout=10)
        if answer.content:
            file = "channel-access-token"
            check_answer(method, path, answer.status_code, answer.json(), file=file)
        return answer

    def issue(self, path):
        return self(path, **GRANT, **self.client).json()

    def by_jwt(self, path=BY_JWT, method="POST", *, jwt=None, **claims):
        jwt = jwt or assertion(self.sim, self.kid, **claims)
        return self(path, method, **GRANT, client_assertion_type=JWT, client_assertion=jwt)

    def verified(self, token, path="/v2/oauth/verify", method="POST"):
        """The seconds that are left, or what LINE says is wrong."""
        told = self(path, method, access_token=token).json()
        assert told.get("client_id") in (None, self.sim.channel_id)
        return told.get("expires_in") or told["error_description"]

    def opens(self, token):
        headers = {"authorization": f"Bearer {token}"}
        answer = requests.get(f"{self.sim.url}/v2/bot/info", headers=headers, timeout=10)
        assert answer.ok or (answer.status_code == 401 and "invalid token" in answer.text)
        return answer.ok


@pytest.fixture
def oauth(sim):
    return Oauth(sim)


def test_a_short_lived_token_ends_after_30_days_when_revoked_and_as_the_31st_is_issued(sim, oauth):
    token, second, third = (oauth.issue(SHORT)["access_token"] for _ in range(3))
    assert oauth.opens(token)
    assert oauth.verified(token) == 30 * DAY
    assert oauth("/v2/oauth/revoke", access_token=token).content == b""
    assert not oauth.opens(token)
    assert oauth.verified(token) == "access_token invalid"
    for _ in range(28):
        oauth.issue(SHORT)
    assert oauth.opens(second)
    oauth.issue(SHORT)
    assert (oauth.opens(second), oauth.opens(third)) == (False, True)
    sim.advance(30 * DAY)
    assert not oauth.opens(third)


def test_the_token_of_the_start_is_long_lived_until_it_is_revoked(sim, oauth):
    sim.advance(366 * DAY)
    assert oauth.verified(sim.token) > 366 * DAY
    assert oauth.opens(sim.token)
    assert oauth("/v2/oauth/revoke", access_token=sim.token).ok
    assert not oauth.opens(sim.token)


def test_a_stateless_token_lives_15_minutes_and_cannot_be_revoked(sim, oauth):
    for told in (oauth.issue(STATELESS), oauth.by_jwt(STATELESS).json()):
        token = told["access_token"]
        assert told["expires_in"] == 900
        oauth("/v2/oauth/revoke", access_token=token)
        oauth("/oauth2/v2.1/revoke", access_token=token, **oauth.client)
        assert oauth.opens(token)
        head, own, until, signature = token.split(".")
        assert not oauth.opens(f"{head}.{own}.{int(until, 16) + 900:x}.{signature}")
    sim.advance(900)
    assert not oauth.opens(token)


def test_thirty_tokens_by_jwt_live_as_long_as_asked_and_are_known_by_their_key_ids(sim, oauth):
    def kids():
        return oauth.by_jwt("/oauth2/v2.1/tokens/kid", "GET").json()["kids"]

    issued = [oauth.by_jwt(token_exp=60).json(), *(oauth.by_jwt().json() for _ in range(29))]
    assert [each["expires_in"] for each in issued[:2]] == [60, 30 * DAY]
    assert kids() == [each["key_id"] for each in issued]
    refused, most = oauth.by_jwt(), "The maximum number of access tokens has already been issued"
    assert (refused.status_code, refused.json()["message"]) == (400, most)
    first, second, third = (each["access_token"] for each in issued[:3])
    where = "/oauth2/v2.1/verify", "GET"
    assert oauth.verified(first, *where) == 60
    sim.advance(60)
    assert oauth.verified(first, *where) == "The access token expired"
    assert not oauth.opens(first)
    assert oauth.by_jwt().ok
    assert oauth("/oauth2/v2.1/revoke", access_token=second, **oauth.client).content == b""
    assert (oauth.opens(second), oauth.opens(third)) == (False, True)
    assert kids()[0] == issued[2]["key_id"]


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
        ({"token_exp": 30 * DAY + 1}, "Invalid token_exp"),
        ({"token_exp": "60"}, "Invalid token_exp"),
    ],
)
def test_an_assertion_that_is_not_right_is_refused(oauth, claims, wrong):
    answer = oauth.by_jwt(**claims)
    assert answer.status_code == 400
    assert answer.json() == {"error": "invalid_client", "error_description": wrong}


def test_an_assertion_of_an_unknown_key_is_not_found(oauth):
    for jwt in ("e30.e30.e30", assertion(oauth.sim, "other")):
        answer = oauth.by_jwt(jwt=jwt)
        assert answer.status_code == 404
        assert answer.json() == {"message": "Cannot find channel key that satisfies the conditions"}


def test_a_wrong_form_is_refused_in_lines_words(sim, oauth):
    other = oauth.client | {"client_secret": "x"}
    missed, jws = "some parameters missed or invalid", {"access_token": "a.b.c"}
    for (path, *method), sent, *right in (
        ([SHORT], oauth.client, "invalid_request", missed),
        ([SHORT], oauth.client | {"grant_type": "x"}, "invalid_request", missed),
        ([SHORT], GRANT | other, "invalid_client", "invalid client_secret"),
        ([STATELESS], GRANT | other, "invalid_request", "Invalid 'client_credentials'."),
        (["/oauth2/v2.1/revoke"], other | jws, "invalid_client", "invalid client_secret"),
        (["/oauth2/v2.1/verify", "GET"], jws, "invalid_request", "The access token malformed"),
        (["/v2/oauth/revoke"], {"access_token": "あ"}, "invalid_request"),
    ):
        answer = oauth(path, *method, **sent)
        assert answer.status_code == 400
        assert list(answer.json().values()) == right
    assert oauth.verified("あ") == "access_token in invalid format"
    assert oauth.verified("x", "/oauth2/v2.1/verify", "GET") == "The access token not JWS"
    assert requests.post(f"{sim.url}{SHORT}", json=GRANT, timeout=10).status_code == 415


def test_a_key_that_lines_console_refuses_is_refused(sim):
    assert register(sim, use=None, key_ops=["verify"]).ok
    short = base64url((2**1024 - 1).to_bytes(128))
    for wrong in ({"kid": "1"}, {"use": None}, {"key_ops": ["verify"]}, {"n": short}):
        assert register(sim, **wrong).status_code == 422
