"""The function words of each language, which a query can spare.

Articles, pronouns, prepositions, conjunctions, auxiliaries and question words; no word that could
be what someone searches for. Written without elided forms: ``l'eau`` is two words.
"""

from __future__ import annotations

STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "catalan": """
            a al als amb aquell aquella aquelles aquells aquest aquesta aquestes aquests això allò
            cada com d de del dels des doncs durant e el ella elles ells els em en encara ens entre
            era eren es és et fins ha hagi han havia haver he hem hi ho i jo l la les li llavors
            lo m mentre meu meva més mi molt molta molts n na nosaltres nostra nostre o on
            pel pels per perquè però poc pot qual quals quan quant quants que què qui s sa se
            sense ser serà seu seus seva seves si sobre sóc som són sota t també tan te teu tinc
            tot tota tots tu un una unes uns us va van vosaltres
        """,
        "danish": """
            af alle alt at blev blive bliver da de dem den denne der deres det dette dig din disse
            dog du efter eller en end er et for fra ham han hans har havde hende hendes her hos
            hun hvad hvem hver hvilken hvilket hvis hvor hvordan hvorfor hvornår i ikke ind ingen
            jeg jer jo kan kunne man mange med meget men mig min mod mit ned noget nogle nu når og
            også om op os over på selv sig sin sit skal skulle som sådan til ud under var ved vi
            vil ville vor være været
        """,
        "dutch": """
            aan al alles als altijd andere ben bij daar dan dat de der deze die dit doch door dus
            een eens en er ge geen geweest haar had heb hebben heeft hem het hier hij hoe hun ik
            in is ja je jullie kan kunnen kunt maar me meer men met mij mijn moet na naar niet
            niets nog nu of om omdat onder ons onze ook op over reeds te tegen toch toen tot u uit
            uw van veel voor waar waarom wanneer want waren was wat we wel welke werd wezen wie
            wij wil word worden wordt zal ze zelf zich zij zijn zo zonder zou
        """,
        "english": """
            a about after again all also am an and any are aren as at be because been before being
            both but by can cannot could couldn d did didn do does doesn doing don during each few
            for from further had hadn has hasn have haven having he her here hers herself him
            himself his how i if in into is isn it its itself just ll m may me might mine more most
            must my myself no nor not of off on once only or other our ours ourselves out over own
            re s same shall she should shouldn so some such t than that the their theirs them
            themselves then there these they this those through to too under until up upon us ve
            very was wasn we were weren what when where which while who whom whose why will with
            won would wouldn you your yours yourself yourselves
        """,
        "finnish": """
            ei eivät ehkä en ennen ettei että he heidän heille heitä hän hänen häntä ja jo joka
            jonka jos joskus jossa jota jotka jotta kaikki kanssa kenen keskellä koska koskaan
            kuin kuinka kuitenkin kuka kun me meidän meille meitä mikä mikään miksi milloin minkä
            minun minut minä missä mistä mitä mukaan mutta muu myös mukana ne niiden niin niitä
            noin nyt näiden nämä näin oli olivat olla olen olet ollut on ovat se sekä sen siellä
            sille sillä sinun sinä siihen siinä siitä sitten sitä tai te teidän tuo tämä tämän
            tässä tästä tätä vaan vai vain vaikka voi voivat yli
        """,
        "french": """
            ai alors au aucun aussi autre aux avait avec avez avoir avons c ce ceci cela celle
            celles celui ces cet cette ceux chaque chez comme comment d dans de depuis des donc
            dont du elle elles en encore entre est et étaient était étant été être eu eux fait
            faut il ils j je jusqu l la laquelle le lequel les lesquelles lesquels leur leurs lors
            lui m ma mais me même mes moi mon n ne ni non nos notre nous on ont ou où par parce
            pas pendant peu peut peuvent plus pour pourquoi qu quand que quel quelle quelles quels
            qui quoi s sa sans se sera seront ses si soit son sont sous sur t ta te tes toi ton
            tous tout toute toutes très tu un une vers vos votre vous y à
        """,
        "german": """
            aber alle allem allen aller alles als also am an auch auf aus bei beim bin bis bist da
            dabei daher damit dann das dass dein deine dem den denn der des desto dessen deshalb
            dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem
            einen einer eines er es etwas euch euer für gegen hab habe haben hat hatte hatten hier
            ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja jede jedem jeden jeder
            jedes jene jetzt kann kein keine keinem keinen keiner können könnte man mehr mein
            meine mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne sehr sein
            seine seinem seinen seiner seit sich sie sind so soll sollen sollte sondern sonst über
            um und uns unser unsere unter vom von vor wann war waren warum was weil welche welchem
            welchen welcher welches wem wen wenn wer werden wie wieder wieso wir wird wo woher
            wohin wollen wurde wurden während würde zu zum zur zwischen
        """,
        "italian": """
            a abbiamo agli ai al all alla alle allo anche ancora avere aveva c che chi ci ciò come
            con cosa cui d da dagli dai dal dall dalla dalle dallo de degli dei del dell della
            delle dello di dopo dove dunque e ecco ed era erano essere fra gli ha hanno ho i il in
            io l la le lei li lo loro lui ma mentre mi mia mie miei mio molto ne negli nei nel
            nell nella nelle nello noi non nostra nostro o ogni oppure per perché perciò però più
            poi può quale quali quando quanto quanti quella quelle quelli quello questa queste
            questi questo qui quindi se sei senza si sia siamo siete sono sopra sotto sta stata
            stati stato su sua sue sugli sui sul sull sulla sulle sullo suo suoi tra tu tua tuo
            tutti tutto un una uno vi voi è
        """,
        "norwegian": """
            alle at av bare begge ble blei bli blir da de deg dei dem den denne der dere deres det
            dette di din disse du eg ei en enn er et ett etter for fordi fra før ha hadde han hans
            har hennes her hun hva hvem hver hvilken hvis hvor hvordan hvorfor i ikke ikkje ingen
            inn ja jeg kan kom kunne man mange med meg men mer min mot mye må nei noe noen nå når
            og også om opp oss over på seg selv sin sine sitt skal skulle slik som så til ut uten
            var ved vi vil ville vår være vært
        """,
        "polish": """
            a aby albo ale ani aż bardzo bez bo by być był była było były będzie będą ci co coś
            czy czyli dla do dlaczego gdy gdyż gdzie go i ich ile im inne itd ja jak jako je jednak
            jego jej jest jestem jeszcze jeśli jeżeli już ją kiedy kto która które którego której
            który których którym którzy ku lecz lub ma mają mi mnie mogą może można mój na nad nam
            nas nasz nie niech nim nią o od on ona one oni oraz po pod ponieważ przed przez przy
            się są ta tak taki także tam te tego tej ten też to tu tutaj twój ty tych tylko tym tę
            u w we wam wasz więc wszystko wy z za ze że żeby
        """,
        "portuguese": """
            a ao aos aquela aquelas aquele aqueles aquilo as até com como cuja cujo da das de dela
            dele deles depois do dos e é ela elas ele eles em entre era eram essa essas esse esses
            esta estas está estão este estes eu foi foram há isso isto já lhe lhes mais mas me
            mesmo meu meus minha minhas muito na nas nem no nos nossa nossas nosso nossos num numa
            não nós o onde os ou para pela pelas pelo pelos pode podem por porque porém quais qual
            quando quanto quantos que quem se seja sem ser será seu seus sobre sua suas são só
            também te tem têm tinha toda todas todo todos tu tua um uma umas uns você vocês à às
        """,
        "russian": """
            а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да
            даже для до его ее её если есть ещё еще же за здесь и из или им их к как какая какие
            какой когда кто куда ли лишь между меня мне может можно мой мы на над надо нас наш не
            него нее ней нет ни них но ну о об однако он она они оно от очень по под почему после
            потому при про с сам сколько со так такой также там тебя тем то тогда того тоже той
            только том тот ту ты у уже чего чей чем через что чтобы эта эти это этого этой этом
            этот эту я
        """,
        "spanish": """
            a adónde al algo alguna algunas alguno algunos ante aquel aquella aquellas aquello
            aquellos aunque cada como con contra cual cuales cuando cuanta cuantas cuanto cuantos
            cuya cuyo cuál cuáles cuándo cuánta cuántas cuánto cuántos cómo de del desde donde
            durante dónde e el ella ellas ello ellos en entre era eran es esa esas ese eso esos
            esta estaba estaban estado estamos estar estas este esto estos está están fue fueron
            ha haber había habían han has hasta hay haya he hemos la las le les lo los me mi mis
            mientras muy más mí nada ni no nos nosotros nuestra nuestras nuestro nuestros o os otra
            otras otro otros para pero por porque pues que quien quienes quién quiénes qué se sea
            sean ser será serán si sido sin sino sobre son soy su sus suya suyo sí también tan
            tanto te tiene tienen todo todos tu tus tú u un una unas uno unos usted ustedes y ya
            yo él
        """,
        "swedish": """
            alla allt att av bara blev bli blir de dem den denna deras dess dessa det detta dig
            din du där därför då efter eller en er ett från för genom ha hade han hans har hela
            henne hennes hon honom hos hur här i icke in ingen inte inom jag ju kan kunde man med
            mellan men mer mig min mot mycket många ni nu när någon något några och också om oss
            på samma sedan sig sin sina sitt sitta själv ska skulle som så till under upp ut utan
            vad var varför varje varit vart vem vi vid vilka vilken vilket vill vår våra än är åt
            över
        """,
    }.items()
}
